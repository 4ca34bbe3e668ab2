package consent

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/councild/councild/internal/council"
)

// TypeSessionFinished is the type of the webhook SessionFinished.
const TypeSessionFinished = "session.finished"

// SessionFinished is the webhook for a session in the background that has ended. It has no text of the session.
type SessionFinished struct {
	Type      string       `json:"type"`      // TypeSessionFinished
	Timestamp time.Time    `json:"timestamp"` // when the session ended
	Data      FinishedData `json:"data"`
}

// FinishedData says which session has ended, and how.
type FinishedData struct {
	SessionID  string         `json:"session_id"`
	ResponseID string         `json:"response_id"` // the id of the session at OpenAI's Responses interface
	Status     council.Status `json:"status"`
	Council    string         `json:"council"`
	Token      string         `json:"token"`    // the name of the token that asked, or ""
	Code       *council.Code  `json:"code"`     // why there is no answer, or null
	CostUSD    *float64       `json:"cost_usd"` // null if the cost is not known
	DurationMS int64          `json:"duration_ms"`
}

// ID returns the id of the webhook. It depends only on the session, so that a receiver recognises a second delivery,
// even one by another node.
func (f SessionFinished) ID() string { return "msg_" + f.Data.SessionID }

// WebhookSink sends webhooks to an address as Standard Webhooks 1.0.0 describes. Its outbox must be
// OutboxOptions.Single.
type WebhookSink struct {
	poster
	keys [][]byte
}

// NewWebhookSink returns a sink that signs each webhook with every key. It reaches the same addresses as NewHTTPSink.
func NewWebhookSink(url string, keys [][]byte, allow []netip.Prefix) *WebhookSink {
	return &WebhookSink{newPoster(url, allow), keys}
}

// Send implements Sink. Each call has a timestamp and signatures of its own.
func (s *WebhookSink) Send(ctx context.Context, events []json.RawMessage) ([]Receipt, error) {
	for _, event := range events {
		var f SessionFinished
		if err := json.Unmarshal(event, &f); err != nil {
			return nil, fmt.Errorf("reading a webhook: %w", err)
		}
		timestamp := strconv.FormatInt(time.Now().Unix(), 10)
		header := http.Header{}
		header.Set("Webhook-Id", f.ID())
		header.Set("Webhook-Timestamp", timestamp)
		header.Set("Webhook-Signature", sign(s.keys, f.ID(), timestamp, event))
		if _, err := s.post(ctx, event, header); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// sign returns the header webhook-signature: one signature for each key, separated by blanks.
func sign(keys [][]byte, id, timestamp string, body []byte) string {
	signatures := make([]string, len(keys))
	for i, key := range keys {
		mac := hmac.New(sha256.New, key)
		_, _ = fmt.Fprintf(mac, "%s.%s.%s", id, timestamp, body) // A hash returns no error.
		signatures[i] = "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	return strings.Join(signatures, " ")
}
