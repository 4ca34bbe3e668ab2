package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/councild/councild/internal/council"
)

// maxPart is the length of the longest part of a message, in bytes, without its header.
const maxPart = 512 << 10

// minPayload is the smallest max_payload of a server that takes every part.
const minPayload = maxPart + 16<<10

// headerName is the header of a message that holds the JSON of a header.
const headerName = "Council"

// ID names a session. Owner is "" where no token is asked for. Both consist of letters,
// digits, - and _: an ID that does not is never found.
type ID struct{ Owner, Session string }

// validToken matches what may be a part of a subject.
var validToken = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// noOwner stands for an owner of "" in subjects.
const noOwner = "_"

// Head is what each message of a log says of its session.
type Head struct {
	Node    string         `json:"node"` // that appended the message
	Epoch   int            `json:"epoch"`
	Status  council.Status `json:"status"`
	Created time.Time      `json:"created,omitzero"`
	CostUSD *float64       `json:"cost_usd,omitempty"`
	Council string         `json:"council,omitempty"`    // as council.Plan names it
	Timing  council.Timing `json:"timing,omitzero"`      // of a session that has ended
	Query   string         `json:"query,omitempty"`      // preview of the question, at most 200 characters
	Key     string         `json:"key,omitempty"`        // name of the session's reservation, or what else Keyed finds it by; "" for none
	Bytes   int64          `json:"bytes"`                // of the log's entries so far, this message included
	Timeout time.Duration  `json:"timeout_ns,omitempty"` // time limit of the run; 0 in messages of earlier versions
}

// statusGone is the status of a mark, the message that Remove leaves in place of a log.
const statusGone council.Status = "gone"

// goneFor is how long a mark stays. While it is there, the engine refuses every append to the log that arrives late.
const goneFor = 10 * time.Minute

// Message is one append to a log.
type Message struct {
	Head
	First   int // number of the first entry, from 1
	Entries []council.Entry
}

// Stored is a message as it is in a log.
type Stored struct {
	Message
	Count int       // of its entries, also where Entries has none
	Seq   uint64    // of its last part in the stream
	At    time.Time // by the engine's clock, UTC
}

// header is what a part of a message carries beside its bytes.
type header struct {
	Head
	First int `json:"first"`
	Count int `json:"count"` // entries that are visible with this part: 0 for all parts but the last
	Part  int `json:"part"`  // from 1
	Parts int `json:"parts"`
}

// gone tells whether the part is a mark.
func (h header) gone() bool { return h.Status == statusGone }

// sameAs tells whether both headers are those of the same part of the same append.
func (h header) sameAs(other header) bool {
	return h.Node == other.Node && h.Epoch == other.Epoch && h.First == other.First && h.Count == other.Count &&
		h.Part == other.Part && h.Parts == other.Parts
}

// part is a message of the stream.
type part struct {
	header
	body []byte
	seq  uint64
	at   time.Time
}

// cut returns the parts in which a message is stored. Only the last one tells the status
// that the message brings: until then the log is that of a running session.
func cut(m Message) []part {
	var body bytes.Buffer
	for _, e := range m.Entries {
		fmt.Fprintf(&body, "%s %d\n", e.Type, len(e.Data))
		body.Write(e.Data)
		body.WriteByte('\n')
	}
	parts := make([]part, max(1, (body.Len()+maxPart-1)/maxPart))
	for i := range parts {
		p := &parts[i]
		p.header = header{Head: m.Head, First: m.First, Part: i + 1, Parts: len(parts)}
		if p.Part == p.Parts {
			p.Count = len(m.Entries)
		} else {
			p.Status = council.StatusRunning
		}
		p.body = body.Next(maxPart)
	}
	return parts
}

var errBody = errors.New("its entries cannot be read")

// entries returns the entries of a message from the bytes of all its parts.
func entries(body []byte) ([]council.Entry, error) {
	var list []council.Entry
	for len(body) > 0 {
		line, rest, _ := bytes.Cut(body, []byte("\n"))
		kind, length, _ := strings.Cut(string(line), " ")
		n, err := strconv.Atoi(length)
		if err != nil || n < 0 || n >= len(rest) {
			return nil, errBody
		}
		list = append(list, council.Entry{Type: council.EventType(kind), Data: rest[:n:n]})
		body = rest[n+1:]
	}
	return list, nil
}

// message returns the message of the stream that a part is.
func (p part) message(subject string) (*nats.Msg, error) {
	value, err := json.Marshal(p.header)
	if err != nil {
		return nil, fmt.Errorf("encoding a message's header: %w", err)
	}
	msg := &nats.Msg{Subject: subject, Header: nats.Header{headerName: {string(value)}}, Data: p.body}
	if p.gone() {
		msg.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
		msg.Header.Set(jetstream.MsgTTLHeader, goneFor.String())
	}
	return msg, nil
}

// parse returns the part that a message of the stream is.
func parse(head nats.Header, body []byte, seq uint64, at time.Time) (part, error) {
	p := part{body: body, seq: seq, at: at.UTC()}
	if err := json.Unmarshal([]byte(head.Get(headerName)), &p.header); err != nil {
		return p, fmt.Errorf("reading the header of message %d: %w", seq, err)
	}
	return p, nil
}

// Damaged is the error of a log that has lost something.
type Damaged struct {
	ID     ID
	Entry  int    // number of the first entry that is missing or cannot be read
	Seq    uint64 // of the message where that was seen
	Reason string
}

// Error names the session and the place.
func (d *Damaged) Error() string {
	return fmt.Sprintf("the log of session %s is damaged at entry %d (message %d): %s",
		d.ID.Session, d.Entry, d.Seq, d.Reason)
}

// reader makes messages of parts.
type reader struct {
	id   ID
	next int    // number of the entry that comes next
	body []byte // of the parts until now, while a message is incomplete
}

// add takes the next part. It returns a message where the part completes one. After
// damage it goes on with what follows.
func (r *reader) add(p part) (m Stored, whole bool, damaged *Damaged) {
	if p.Part == 1 {
		r.body = nil // of a message that was given up
	}
	r.body = append(r.body, p.body...)
	if p.Part < p.Parts {
		return m, false, nil
	}
	list, err := entries(r.body)
	if err == nil && len(list) != p.Count {
		err = errBody // a part is missing
	}
	if p.First != r.next && err == nil {
		damaged = &Damaged{
			ID:     r.id,
			Entry:  r.next,
			Seq:    p.seq,
			Reason: fmt.Sprintf("the entries before %d are missing", p.First),
		}
	} else if err != nil {
		damaged = &Damaged{ID: r.id, Entry: r.next, Seq: p.seq, Reason: err.Error()}
	}
	r.next = p.First + p.Count
	r.body = nil
	m = Stored{Message: Message{Head: p.Head, First: p.First, Entries: list}, Count: p.Count, Seq: p.seq, At: p.at}
	return m, err == nil, damaged
}
