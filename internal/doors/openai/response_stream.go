package openai

import (
	"unicode/utf8"

	"github.com/councild/councild/internal/council"
)

// The number of an event of a response is a place in the text, and not a counter. A kept session stores many pieces of
// text as one, so a client that comes back would find other counts. The events that begin the response have the numbers
// 0 to 3. A delta that ends with character n of the text has the number 3+n. The last four events follow.
//
// A text is written again if the chairman fails, or if another process continues the session. Each time all later
// numbers grow by draftStep. A client that has a part of an earlier draft gets no deltas of a later one, because its
// text would be made of both. It gets the whole text at the end.

// draftStep is larger than the number of characters of a text, because a reply has fewer bytes by default. It is so small
// that the numbers of a hundred drafts fit into 32 bits.
const draftStep = 1 << 24

// These are the numbers of the events that begin a response. textBegins is also the number of an empty text.
const (
	responseBegins = iota
	responseRunning
	itemBegins
	textBegins
)

// responseStream turns the events of a session into the events of a response.
type responseStream struct {
	*textStream
	view   *view
	after  int // events up to this number were sent before, -1 for none
	draft  int // how many times the text was begun again
	length int // the characters of the draft so far
	shown  int // the last draft of which the client has text, -1 if there is none
}

// responseEvent is one event of a streamed response. Each type of event uses some of the fields.
type responseEvent struct {
	Type           string           `json:"type"`
	SequenceNumber int              `json:"sequence_number"`
	Response       *Response        `json:"response,omitempty"`
	ItemID         string           `json:"item_id,omitempty"`
	OutputIndex    *int             `json:"output_index,omitempty"`
	ContentIndex   *int             `json:"content_index,omitempty"`
	Item           *ResponseMessage `json:"item,omitempty"`
	Part           *ResponsePart    `json:"part,omitempty"`
	Delta          *string          `json:"delta,omitempty"`
	Text           *string          `json:"text,omitempty"`
	Logprobs       *[]string        `json:"logprobs,omitempty"`
}

// newResponseStream returns a stream that begins with an empty response in progress.
func newResponseStream(v *view) *textStream { return newResponseStreamAfter(v, -1) }

// newResponseStreamAfter returns the part of a stream that follows the event with the number after.
func newResponseStreamAfter(v *view, after int) *textStream {
	t := &responseStream{textStream: newTextStream(v.s), view: v, after: after, shown: -1}
	if after > textBegins {
		t.shown = (after - textBegins - 1) / draftStep
	}
	t.textStream.event = t.event
	begun := v.response(responseRuns)
	t.next("response.created", responseBegins, responseEvent{Response: &begun})
	t.next("response.in_progress", responseRunning, responseEvent{Response: &begun})
	return t.textStream
}

// next adds an event to out, unless it was sent before.
func (t *responseStream) next(name string, number int, e responseEvent) {
	if number <= t.after {
		return
	}
	e.Type = name
	e.SequenceNumber = number
	t.out.WriteString("event: " + name + "\n")
	t.send(e)
}

// place returns the number of an event that follows so many characters of the draft.
func (t *responseStream) place(characters int) int {
	return t.draft*draftStep + textBegins + characters
}

// ofItem adds an event about the message of the response.
func (t *responseStream) ofItem(name string, number int, item ResponseMessage) {
	t.next(name, number, responseEvent{OutputIndex: new(0), Item: &item})
}

// ofPart adds an event about the text of the message.
func (t *responseStream) ofPart(name string, number int, e responseEvent) {
	e.ItemID = "msg_" + t.s.ID
	e.OutputIndex = new(0)
	e.ContentIndex = new(0)
	t.next(name, number, e)
}

// event adds the events of a response for one event of the session.
func (t *responseStream) event(e council.Event) {
	restart, isRestart := e.Data.(council.Restart)
	if isRestart {
		t.restarts++
	}
	if draft := e.Takeovers + t.restarts; draft != t.draft {
		t.draft = draft
		t.length = 0
	}
	switch data := e.Data.(type) {
	case council.Delta:
		t.write(data.Text)
	case council.Restart:
		if !t.watches && !t.s.Background() {
			t.fail(t.lost(restart))
		}
	case *council.Session:
		t.end(data)
	case *council.Error:
		t.fail(data)
	default:
		t.comment(e)
	}
}

// end adds the last events of a response that has an answer.
func (t *responseStream) end(session *council.Session) {
	if t.length == 0 { // The session had no deltas, so send the whole answer now.
		t.write(session.Answer)
	}
	if line := noteLine(session); line != "" {
		t.write(line)
	}
	t.view.forgetNow()
	ended := t.view.ended(session)
	part := ended.Output[0].Content[0]
	last := t.place(utf8.RuneCountInString(part.Text))
	t.ofPart("response.output_text.done", last+1, responseEvent{Text: &part.Text, Logprobs: &part.Logprobs})
	t.ofPart("response.content_part.done", last+2, responseEvent{Part: &part})
	t.ofItem("response.output_item.done", last+3, responseMessage(t.s, ended.Status, part))
	t.next("response."+ended.Status, last+4, responseEvent{Response: &ended})
}

// write adds a piece of the answer. Before the first piece it adds the events that begin the message.
func (t *responseStream) write(text string) {
	begin := t.place(t.length)
	t.length += utf8.RuneCountInString(text)
	number := t.place(t.length)
	if number <= t.after || t.shown >= 0 && t.shown < t.draft {
		return
	}
	for ; begin < t.after; begin++ {
		_, size := utf8.DecodeRuneInString(text)
		text = text[size:]
	}
	empty := responsePart("")
	if !t.sent {
		t.ofItem("response.output_item.added", itemBegins, responseMessage(t.s, responseRuns))
		t.ofPart("response.content_part.added", textBegins, responseEvent{Part: &empty})
	}
	t.sent = true
	t.shown = t.draft
	t.ofPart("response.output_text.delta", number, responseEvent{Delta: &text, Logprobs: &empty.Logprobs})
}

// fail adds the event that says why there is no answer.
func (t *responseStream) fail(e *council.Error) {
	failed := t.view.failed(e)
	t.next("response.failed", t.place(t.length)+4, responseEvent{Response: &failed})
}
