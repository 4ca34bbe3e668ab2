package consent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/councild/councild/internal/disk"
	"github.com/councild/councild/internal/store"
)

const (
	// sendTimeout is how long one delivery may take.
	sendTimeout = 20 * time.Second
	// maxReply is how many bytes of a sink's answer are read.
	maxReply = 1 << 20
)

// Refusal is the error of a sink that answered and accepted nothing.
type Refusal struct {
	StatusCode int
	RetryAfter time.Duration // 0 if the sink does not say
}

// Error names the status and the remedy.
func (r *Refusal) Error() string {
	text := fmt.Sprintf("the sink answers %d %s", r.StatusCode, http.StatusText(r.StatusCode))
	switch {
	case r.StatusCode >= 300 && r.StatusCode < 400:
		return text + ": redirects are not followed; name the address that takes events"
	case r.StatusCode == http.StatusUnauthorized || r.StatusCode == http.StatusForbidden:
		return text + ": check the token or the secret"
	case r.StatusCode == http.StatusNotFound || r.StatusCode == http.StatusMethodNotAllowed:
		return text + ": check the address, and whether events are taken in there"
	default:
		return text
	}
}

// Gone reports whether the sink wants no more events.
func (r *Refusal) Gone() bool { return r.StatusCode == http.StatusGone }

// overloaded reports whether the sink asks for fewer requests.
func (r *Refusal) overloaded() bool {
	switch r.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	default:
		return false
	}
}

// poster posts JSON to an address. See newPoster.
type poster struct {
	url    string
	client *http.Client
}

// HTTPSink sends events to an address.
type HTTPSink struct {
	poster
	token string
}

// NewHTTPSink returns a sink that posts {"events": [...]} to an address, with token as a bearer token. It reaches only
// the addresses that newPoster allows.
func NewHTTPSink(url, token string, allow []netip.Prefix) *HTTPSink {
	return &HTTPSink{newPoster(url, allow), token}
}

// newPoster returns a poster. It connects only to public addresses and to addresses in allow, whatever the host name
// resolves to. It follows no redirects and uses no proxy.
func newPoster(url string, allow []netip.Prefix) poster {
	dialer := &net.Dialer{Timeout: sendTimeout, Control: func(_, address string, _ syscall.RawConn) error {
		return checkAddress(address, allow)
	}}
	return poster{url, &http.Client{
		Timeout: sendTimeout,
		Transport: &http.Transport{
			DialContext: dialer.DialContext, DisableCompression: true, ForceAttemptHTTP2: true, MaxIdleConns: 1,
			IdleConnTimeout: time.Minute, TLSHandshakeTimeout: sendTimeout, MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// checkAddress returns an error if an address is neither public nor allowed. It is called after the name was looked
// up.
func checkAddress(address string, allow []netip.Prefix) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	ip := at.Addr().Unmap().WithZone("")
	if IsPublic(ip) || slices.ContainsFunc(allow, func(p netip.Prefix) bool { return p.Contains(ip) }) {
		return nil
	}
	return fmt.Errorf("%s is not a public address, and LLM_COUNCIL_EVENT_ALLOW does not contain it", ip)
}

// IsPublic reports whether an address belongs to one host on the public Internet, according to the special-purpose
// address registries of IANA (RFC 6890). An IPv6 address that contains an IPv4 address, as in 6to4 and NAT64, does
// not count as public.
func IsPublic(ip netip.Addr) bool {
	ip = ip.Unmap()
	if !ip.IsGlobalUnicast() || ip.IsPrivate() {
		return false
	}
	for _, special := range []string{
		"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15",
		"198.51.100.0/24",
		"203.0.113.0/24", "240.0.0.0/4",
		"64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
		"5f00::/16", "fec0::/10", "::/96",
	} {
		if netip.MustParsePrefix(special).Contains(ip) {
			return false
		}
	}
	return true
}

// Send implements Sink.
func (s *HTTPSink) Send(ctx context.Context, events []json.RawMessage) ([]Receipt, error) {
	body, err := json.Marshal(struct {
		Events []json.RawMessage `json:"events"`
	}{events})
	if err != nil {
		return nil, err
	}
	header := http.Header{}
	if s.token != "" {
		header.Set("Authorization", "Bearer "+s.token)
	}
	reply, err := s.post(ctx, body, header)
	if err != nil {
		return nil, err
	}
	var said Taken
	if json.Unmarshal(reply, &said) != nil {
		return nil, nil //nolint:nilerr // The receiver is not a councild. Its status says enough.
	}
	return said.Events, nil
}

// post sends a body and returns the reply. If the status is not 2xx, the error is a *Refusal.
func (p *poster) post(ctx context.Context, body []byte, header http.Header) (reply []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = header
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "councild")
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	reply, err = io.ReadAll(io.LimitReader(resp.Body, maxReply))
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return nil, &Refusal{StatusCode: resp.StatusCode, RetryAfter: retryAfter(resp.Header.Get("Retry-After"))}
	}
	if err != nil {
		return nil, fmt.Errorf("reading what the sink answers: %w", err)
	}
	return reply, nil
}

// retryAfter reads the header Retry-After: seconds, or a date. It returns 0 if it can read neither.
func retryAfter(text string) time.Duration {
	if seconds, err := strconv.Atoi(text); err == nil {
		return time.Duration(max(0, min(seconds, 1<<20))) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}

// Holds implements Sink. It asks nothing, because the receiver recognises duplicates itself.
func (p *poster) Holds(context.Context, map[string]bool) ([]string, error) { return nil, nil }

// Close closes the idle connection.
func (p *poster) Close() error {
	p.client.CloseIdleConnections()
	return nil
}

// FileSink appends events to a file of JSON lines.
type FileSink struct {
	path  string
	store *store.Store
}

// OpenFileSink opens the file for appending. Close releases it.
func OpenFileSink(path string, on disk.Disk, log *slog.Logger) (*FileSink, error) {
	s, _, err := store.Open(store.Options{Path: path, Disk: on, Log: log})
	if err != nil {
		return nil, err
	}
	return &FileSink{path, s}, nil
}

// Send implements Sink. It returns once the events are on disk.
func (s *FileSink) Send(ctx context.Context, events []json.RawMessage) ([]Receipt, error) {
	var all []func(context.Context) error
	for _, e := range events {
		wait, err := s.store.AppendLines(append(slices.Clone(e), '\n'))
		if err != nil {
			return nil, err
		}
		all = append(all, wait)
	}
	for _, wait := range all {
		if err := wait(ctx); err == nil {
			continue
		}
		// Wait, and do not send the events again, because the store itself later writes the lines that the disk does
		// not accept now.
		for s.store.Healthy() != nil {
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
	return nil, nil
}

// Holds implements Sink.
func (s *FileSink) Holds(ctx context.Context, ids map[string]bool) (held []string, err error) {
	for line, err := range store.PlainLines(ctx, s.path) {
		if errors.Is(err, fs.ErrNotExist) {
			return held, nil
		}
		if err != nil {
			return nil, err
		}
		var e struct {
			ID string `json:"event_id"`
		}
		if json.Unmarshal(line, &e) == nil && ids[e.ID] {
			held = append(held, e.ID)
		}
	}
	return held, nil
}

// Close releases the file.
func (s *FileSink) Close() error { return s.store.Close() }

// Taken is the answer of a receiver to a request with events.
type Taken struct {
	Accepted   int       `json:"accepted"`
	Duplicates int       `json:"duplicates"`
	Rejected   int       `json:"rejected"`
	Events     []Receipt `json:"events"` // in the order of the events in the request
}
