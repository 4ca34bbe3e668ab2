package journal

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"
)

// maxRelayed and maxRelayedBytes limit the messages that wait for a reader of Relayed.
const (
	maxRelayed      = 1024
	maxRelayedBytes = 8 << 20
)

// Relay sends data to the processes that read from Relayed for this session. It does not wait. Data that cannot be sent
// at once is lost.
func (j *Journal) Relay(id ID, data []byte) {
	subject, err := j.subject("delta", id)
	if err != nil {
		return
	}
	select {
	case j.relay <- &nats.Msg{Subject: subject, Data: data}:
	default:
	}
}

// relayAll sends the data that Relay has queued, until ctx ends.
func (j *Journal) relayAll(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case msg := <-j.relay:
			if l, err := j.reading(ctx); err == nil {
				_ = l.conn.PublishMsg(msg)
			}
		}
	}
}

// Relayed returns the data that any process, this one included, passes to Relay for a session from now on. The channel
// is closed when ctx or the Journal ends. A reader that is too slow loses data.
func (j *Journal) Relayed(ctx context.Context, id ID) (<-chan []byte, error) {
	subject, err := j.subject("delta", id)
	if err != nil {
		return nil, err
	}
	l, err := j.reading(ctx)
	if err != nil {
		return nil, err
	}
	sub, err := l.conn.SubscribeSync(subject)
	if err != nil {
		return nil, err
	}
	if err := sub.SetPendingLimits(maxRelayed, maxRelayedBytes); err != nil {
		return nil, err
	}
	out := make(chan []byte)
	j.wg.Go(func() {
		defer close(out)
		defer func() { _ = sub.Unsubscribe() }()
		for {
			msg, err := sub.NextMsgWithContext(ctx)
			if errors.Is(err, nats.ErrSlowConsumer) {
				continue
			}
			if err != nil {
				return
			}
			select {
			case out <- msg.Data:
			case <-ctx.Done():
				return
			case <-j.done:
				return
			}
		}
	})
	return out, nil
}
