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

// maxPart is the size of the largest part of a message, in bytes, without its header.
const maxPart = 512 << 10

// minPayload is the smallest max_payload with which a server takes every part.
const minPayload = maxPart + 16<<10

// headerName is the NATS header that holds the JSON of a header.
const headerName = "Council"

// ID names a session. Owner is "" if the daemon asks for no token. Session, and Owner if it is not "", must match
// validToken. A session with any other ID has no log.
type ID struct{ Owner, Session string }

// validToken matches a token that may be part of a subject.
var validToken = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// noOwner stands for an owner of "" in subjects.
const noOwner = "_"

// Head is the part of each message that describes its session.
type Head struct {
	Node    string         `json:"node"` // the node that appended the message
	Epoch   int            `json:"epoch"`
	Status  council.Status `json:"status"`
	Created time.Time      `json:"created,omitzero"`
	CostUSD *float64       `json:"cost_usd,omitempty"`
	Council string         `json:"council,omitempty"` // the name of the council in council.Plan
	Timing  council.Timing `json:"timing,omitzero"`   // set when the session has ended
	Query   string         `json:"query,omitempty"`   // preview of the question, at most 200 characters
	Title   string         `json:"title,omitempty"`   // the title that a person gave the session
	Answer  string         `json:"answer,omitempty"`  // first line of the answer, set when the session has ended
	// CouncilName is the name of the council in lists of sessions. It is "" in messages of earlier versions.
	CouncilName string `json:"council_name,omitempty"`
	council.Turn
	// Asked is a hash. It covers the questions of the conversation, up to this one.
	Asked string `json:"asked,omitempty"`
	// Key is the name of the session's reservation, or another key with which Keyed finds the session. It is "" if
	// there is none.
	Key   string `json:"key,omitempty"`
	Bytes int64  `json:"bytes"` // the size of all entries of the log up to this message
	// Timeout is the time limit of the run. It is 0 in messages of earlier versions.
	Timeout time.Duration `json:"timeout_ns,omitempty"`
}

// statusGone is the status of a mark, the message that Remove leaves in place of a log.
const statusGone council.Status = "gone"

// goneFor is how long a mark stays in the stream. During this time, the engine refuses every late append to the log.
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
	// Count is the number of entries in the message. It is set even if Entries is not.
	Count int
	Seq   uint64    // the sequence of its last part
	At    time.Time // when it was stored, by the engine's clock, in UTC
}

// header describes a part of a message. It is stored in the header of a NATS message.
type header struct {
	Head
	First int `json:"first"`
	Count int `json:"count"` // entries that are visible with this part; 0 except in the last part
	Part  int `json:"part"`  // from 1
	Parts int `json:"parts"`
}

// gone reports whether the part is a mark.
func (h header) gone() bool { return h.Status == statusGone }

// sameAs reports whether both headers belong to the same part of the same append.
func (h header) sameAs(other header) bool {
	return h.Node == other.Node && h.Epoch == other.Epoch && h.First == other.First && h.Count == other.Count &&
		h.Part == other.Part && h.Parts == other.Parts
}

// part is one message of the stream.
type part struct {
	header
	body []byte
	seq  uint64
	at   time.Time
}

// cut returns the parts in which a message is stored. Only the last part has the status of the message. Until that
// part is stored, the log says that the session runs.
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

// message returns the NATS message for a part.
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

// parse returns the part in a NATS message.
func parse(head nats.Header, body []byte, seq uint64, at time.Time) (part, error) {
	p := part{body: body, seq: seq, at: at.UTC()}
	if err := json.Unmarshal([]byte(head.Get(headerName)), &p.header); err != nil {
		return p, fmt.Errorf("reading the header of message %d: %w", seq, err)
	}
	return p, nil
}

// Damaged is the error of a log that has lost entries.
type Damaged struct {
	ID     ID
	Entry  int    // number of the first entry that is missing or cannot be read
	Seq    uint64 // sequence of the message at which the damage was found
	Reason string
}

// Error names the session, and where in its log the damage is.
func (d *Damaged) Error() string {
	return fmt.Sprintf("the log of session %s is damaged at entry %d (message %d): %s",
		d.ID.Session, d.Entry, d.Seq, d.Reason)
}

// reader joins parts to messages.
type reader struct {
	id   ID
	next int    // number of the entry that comes next
	body []byte // the parts so far of an incomplete message
}

// add adds the next part of the log. If the part completes a message, add returns the message, and whole is true. If
// damaged is not nil, the caller can still add more parts.
func (r *reader) add(p part) (m Stored, whole bool, damaged *Damaged) {
	if p.Part == 1 {
		r.body = nil // The old body belongs to a message that was given up.
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
