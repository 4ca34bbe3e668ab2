package consent

import "net/http"

// Sign is sign.
var Sign = sign

// MaxParallel is maxParallel.
const MaxParallel = maxParallel

// SetTransport replaces what carries the requests of a WebhookSink.
func (s *WebhookSink) SetTransport(transport http.RoundTripper) { s.client.Transport = transport }
