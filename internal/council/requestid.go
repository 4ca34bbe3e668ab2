package council

import "context"

type requestIDKey struct{}

// WithRequestID returns a context that carries the id of an HTTP request. Log lines that are written with the context
// have the id.
func WithRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestIDKey{}, id)
}

// RequestID returns the id of the request that ctx serves, or "".
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}
