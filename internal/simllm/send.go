package simllm

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"strconv"
	"time"
)

// send writes a response. Pieces of a stream have a pause between them. The fault may change what happens to the connection. The error says that the response was
// not sent as intended. http.ErrAbortHandler asks the caller to close the connection.
func (m *model) send(
	ctx context.Context, w http.ResponseWriter, r response, f *fault, pause time.Duration, start time.Time,
) error {
	if f.Kind == FaultHang {
		return sleep(ctx, forever)
	}
	if f.Kind == FaultReset {
		return reset(w)
	}
	header := w.Header()
	header.Set("Content-Type", r.contentType)
	if r.retryAfter != "" {
		header.Set("Retry-After", r.retryAfter)
	}
	if len(r.pieces) == 1 && f.Kind != FaultLateEnd {
		header.Set("Content-Length", strconv.Itoa(len(r.pieces[0])))
	}
	header.Set("X-Simulated-Dwell-Us", strconv.FormatInt(time.Since(start).Microseconds(), 10))
	w.WriteHeader(r.status)

	whole := bytes.Join(r.pieces, nil)
	half := len(whole) / 2
	out := output{w: w, control: http.NewResponseController(w)}
	switch f.Kind {
	case FaultResetBody:
		out.write(whole[:half])
		if out.err == nil {
			out.err = reset(w)
		}
	case FaultEOFBody:
		out.write(whole[:half])
		if out.err == nil {
			out.err = http.ErrAbortHandler
		}
	case FaultStall:
		out.write(whole[:half])
		out.wait(ctx, f.Delay)
		out.write(whole[half:])
	case FaultLateEnd:
		out.write(whole)
		out.wait(ctx, f.Delay)
	case FaultSlowBody:
		out.trickle(ctx, whole, f.Size)
	default:
		if len(r.pieces) == 1 {
			_, err := w.Write(whole) // without a flush, headers and body are sent together
			return err
		}
		out.stream(ctx, r, pause)
	}
	return out.err
}

// output writes a body piece by piece. After its first error it does nothing.
type output struct {
	w       http.ResponseWriter
	control *http.ResponseController
	err     error
}

func (o *output) write(p []byte) {
	if o.err == nil {
		_, o.err = o.w.Write(p)
	}
	if o.err == nil {
		o.err = o.control.Flush()
	}
}

func (o *output) wait(ctx context.Context, d time.Duration) {
	if o.err == nil {
		o.err = sleep(ctx, d)
	}
}

// stream writes the pieces of a response with a pause between them. After the first piece it writes the filling.
func (o *output) stream(ctx context.Context, r response, pause time.Duration) {
	for i, piece := range r.pieces {
		if i > 0 {
			o.wait(ctx, pause)
		}
		o.write(piece)
		if i == 0 {
			o.fill(r.filling, r.fillings)
		}
	}
}

// fill writes a text n times.
func (o *output) fill(text []byte, n int64) {
	for n > 0 && o.err == nil {
		const block = 64 << 10
		times := min(n, int64(max(block/len(text), 1)))
		o.write(bytes.Repeat(text, int(times)))
		n -= times
	}
}

// trickle writes p at a rate in bytes per second, in up to 20 writes a second.
func (o *output) trickle(ctx context.Context, p []byte, rate int64) {
	for len(p) > 0 && o.err == nil {
		n := min(max(rate/20, 1), int64(len(p)))
		o.write(p[:n])
		if p = p[n:]; len(p) > 0 {
			o.wait(ctx, time.Duration(n)*time.Second/time.Duration(rate))
		}
	}
}

// reset ends the connection of a response with a TCP reset. If it cannot take over a TCP connection, it closes the
// connection in another way.
func reset(w http.ResponseWriter) error {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return http.ErrAbortHandler
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // Close then discards unsent data and sends a reset
	}
	return conn.Close()
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
