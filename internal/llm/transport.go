package llm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"

	"github.com/councild/councild/internal/council"
)

// maxErrorBytes bounds what is read of an error's body: its text is cut to
// maxMessageBytes anyway.
const maxErrorBytes = 64 << 10

// exchange carries, through the context of one call, what go-openai's structs
// cannot: fields for the request on the way in; status, headers and the body on
// the way out.
type exchange struct {
	extra []byte // JSON members, each with a comma behind it, put first in the body

	sent   bool // the request left, at least in part
	status int  // 0 when no response came
	header http.Header
	body   []byte
}

type exchangeKey struct{}

func withExchange(ctx context.Context, x *exchange) context.Context {
	return context.WithValue(ctx, exchangeKey{}, x)
}

// extraFields renders the request fields that go-openai would drop (a
// temperature of 0), refuse (sampling parameters of models it knows by name), or
// does not have.
func extraFields(host string, call council.Call, format *council.Format) []byte {
	var b []byte
	if call.Temperature != nil {
		b = append(b, `"temperature":`...)
		b = strconv.AppendFloat(b, *call.Temperature, 'g', -1, 64)
		b = append(b, ',')
	}
	if call.MaxOutputTokens != nil {
		// OpenAI's own newer models take only the newer name, most compatible
		// servers only the older one.
		name := `"max_tokens":`
		if host == "api.openai.com" {
			name = `"max_completion_tokens":`
		}
		b = append(b, name...)
		b = strconv.AppendInt(b, int64(*call.MaxOutputTokens), 10)
		b = append(b, ',')
	}
	if format != nil {
		b = append(b, `"response_format":{"type":"json_schema","json_schema":{"name":"`+format.Name+`","strict":true,"schema":`...)
		b = append(b, format.Schema...)
		b = append(b, "}},"...)
	}
	if host == "openrouter.ai" {
		b = append(b, `"usage":{"include":true},`...) // asks for the cost
	}
	return b
}

// transport is the RoundTripper under go-openai. It hands the library a body
// that was read to its end within the limit, so that the connection is free
// again and a broken reply can never look like a whole one.
type transport struct {
	base     http.RoundTripper
	maxBytes int64
}

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	x, ok := req.Context().Value(exchangeKey{}).(*exchange)
	if !ok {
		return nil, errors.New("llm: a request without its exchange")
	}
	if len(x.extra) > 0 {
		if err := prepend(req, x.extra); err != nil {
			return nil, err
		}
	}
	x.sent = true
	resp, err := t.base.RoundTrip(req)
	if err != nil {
		if isDial(err) {
			x.sent = false
		}
		return nil, err
	}
	defer resp.Body.Close()
	x.status, x.header = resp.StatusCode, resp.Header

	limit := t.maxBytes
	if resp.StatusCode >= 300 {
		limit = min(limit, maxErrorBytes)
	}
	x.body, err = io.ReadAll(io.LimitReader(resp.Body, limit+1))
	switch {
	case int64(len(x.body)) > limit:
		if resp.StatusCode < 300 {
			return nil, &council.Failure{Code: council.FailTooLarge, Message: fmt.Sprintf("the reply is larger than %d bytes", limit)}
		}
		x.body = x.body[:limit] // an error's body may be cut: the status says enough
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, &council.Failure{Code: council.FailTruncated, Message: "the reply ended before it was complete"}
	case err != nil && req.Context().Err() == nil:
		return nil, &council.Failure{Code: council.FailReset, Message: "the connection broke in the middle of the reply"}
	case err != nil:
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(x.body))
	return resp, nil
}

// prepend puts extra members first in the request's JSON object.
func prepend(req *http.Request, extra []byte) error {
	var b bytes.Buffer
	b.Grow(len(extra) + int(max(req.ContentLength, 0)))
	b.WriteByte('{')
	b.Write(extra)
	rest, err := io.ReadAll(req.Body)
	if err != nil {
		return err
	}
	b.Write(bytes.TrimPrefix(rest, []byte("{")))
	body := b.Bytes()
	req.ContentLength = int64(len(body))
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	req.Body, err = req.GetBody()
	return err
}

// cost returns what the provider says the call cost in US dollars (OpenRouter's
// extension of usage), or nil.
func (x *exchange) cost() *float64 {
	if !bytes.Contains(x.body, []byte(`"cost"`)) {
		return nil
	}
	var reply struct {
		Usage struct {
			Cost *float64 `json:"cost"`
		} `json:"usage"`
	}
	if json.Unmarshal(x.body, &reply) != nil || reply.Usage.Cost == nil || *reply.Usage.Cost < 0 || math.IsInf(*reply.Usage.Cost, 0) {
		return nil
	}
	return reply.Usage.Cost
}
