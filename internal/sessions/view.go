package sessions

import (
	"slices"
	"unicode/utf8"

	"github.com/councild/councild/internal/council"
)

// view is the part of a log that clients can see: its entries in order, and after them the texts that models are still
// writing.
type view struct {
	events  []council.Event // as the run observed them, or as the log has them
	entries []council.Entry // the encoded events
	// encoded is how many of the events encodeLocked has handled. An event that cannot be encoded is counted, but has
	// no entry.
	encoded int
	text    []piece // the pieces of all texts that models are still writing, as they came
	lengths []int   // the length of each of these texts, in characters
	encoder encoder
	// claims has, for each time that another process took the session over, the number of entries before that.
	claims []int
}

// piece is a part of a text that a model is still writing.
type piece struct {
	entry  council.Entry
	writer int // index of its text, in the order in which the texts began
	length int // in characters
}

// newPiece returns the piece for an entry that holds text.
func newPiece(writer int, entry council.Entry) piece {
	return piece{entry, writer, utf8.RuneCountInString(textOf(entry).text)}
}

// Page holds what follows a position in a log, in this order: the rest of each text entry that the reader has read in
// part, whole entries, and pieces of texts that models are still writing.
type Page struct {
	Entries []council.Entry
	rests   []Position // for each rest, the position after it
	behind  int        // the number of the last entry before the first whole entry of the page
	pieces  []Position // for each piece, the position after it
}

// Position returns the position after entry i of the page.
func (p Page) Position(i int) Position {
	if i < len(p.rests) {
		return p.rests[i]
	}
	if whole := len(p.Entries) - len(p.pieces); i >= whole {
		return p.pieces[i-whole]
	}
	return Position{Number: p.behind + 1 + i - len(p.rests)}
}

// page returns what follows a position. The events must be encoded.
func (v *view) page(behind Position) Page {
	p := Page{behind: min(behind.Number, len(v.entries))}
	seen := behind.Characters
	var rests []council.Entry
	for ; len(seen) > 0 && p.behind < len(v.entries); seen = seen[1:] {
		entry := v.entries[p.behind]
		if !isText(entry.Type) { // The process that had shown the texts died, and the texts are lost.
			seen = nil
			break
		}
		p.behind++
		if rest, ok := v.behind(entry, seen[0]); ok {
			rests = append(rests, rest)
			p.rests = append(p.rests, Position{p.behind, seen[1:]})
		}
	}
	p.Entries = slices.Clip(v.entries[p.behind:]) // The view appends to the same array.
	if len(rests) > 0 {
		p.Entries = slices.Concat(rests, p.Entries)
	}
	if p.behind < len(v.entries) {
		seen = nil
	}
	at := make([]int, len(v.lengths)) // for each text, how many characters the pieces so far have
	place := slices.Clone(seen)       // for each text, how many characters the reader has
	for _, part := range v.text {
		begin := at[part.writer]
		w := part.writer
		at[w] += part.length
		for len(place) <= w {
			place = append(place, 0)
		}
		if at[w] <= place[w] {
			continue
		}
		entry := part.entry
		if begin < place[w] {
			entry, _ = v.behind(entry, place[w]-begin)
		}
		place[w] = at[w]
		p.Entries = append(p.Entries, entry)
		p.pieces = append(p.pieces, Position{len(v.entries), slices.Clone(place)})
	}
	return p
}

// behind returns a piece of text without its first characters. ok is false if no text is left.
func (v *view) behind(e council.Entry, characters int) (rest council.Entry, ok bool) {
	t := textOf(e)
	for ; characters > 0 && t.text != ""; characters-- { // A client chose the number, so it may be too large.
		_, size := utf8.DecodeRuneInString(t.text)
		t.text = t.text[size:]
	}
	if t.text == "" {
		return e, false
	}
	data, err := v.encoder.encode(t.event().Data)
	return council.Entry{Type: e.Type, Data: data[:max(0, len(data)-1)]}, err == nil
}

// written is a text and its writer.
type written struct {
	model string // member id, or "" for the final answer
	text  string
}

// event returns the event that reports the text.
func (t written) event() council.Event {
	if t.model == "" {
		return council.Event{Type: council.EventDelta, Data: council.Delta{Text: t.text}}
	}
	return council.Event{Type: council.EventAnswerDelta, Data: council.AnswerDelta{Model: t.model, Text: t.text}}
}

// writtenIn returns the text that an event reports. ok is false if it reports something else.
func writtenIn(e council.Event) (t written, ok bool) {
	switch data := e.Data.(type) {
	case council.Delta:
		return written{text: data.Text}, true
	case council.AnswerDelta:
		return written{data.Model, data.Text}, true
	default:
		return t, false
	}
}

// isText reports whether entries of this type hold text.
func isText(t council.EventType) bool {
	return t == council.EventDelta || t == council.EventAnswerDelta
}

// textOf returns the text of an entry that holds text.
func textOf(e council.Entry) (t written) {
	if event, err := e.Decode(); err == nil {
		t, _ = writtenIn(event)
	}
	return t
}

// show appends an event with its entry. The entry replaces the texts that were still being written.
func (v *view) show(e council.Event, entry council.Entry) {
	v.events = append(v.events, e)
	v.entries = append(v.entries, entry)
	v.encoded = len(v.events)
	v.clearText()
}

// write appends a piece to a text that is still being written, or begins the next text.
func (v *view) write(p piece) {
	if p.writer == len(v.lengths) {
		v.lengths = append(v.lengths, 0)
	}
	v.lengths[p.writer] += p.length
	v.text = append(v.text, p)
}

// length returns the length of a text that is still being written, in characters. It is 0 for a text that has not
// begun.
func (v *view) length(writer int) int {
	if writer == len(v.lengths) {
		return 0
	}
	return v.lengths[writer]
}

// clearText forgets the texts that are still being written.
func (v *view) clearText() {
	v.text = nil
	v.lengths = nil
}

// takenOver notes that another process continues the session. The texts that were still being written are lost.
func (v *view) takenOver() {
	v.claims = append(v.claims, len(v.entries))
	v.clearText()
}

// takeovers returns how many times another process had taken the session over when the entry or the text before a
// position was written.
func (v *view) takeovers(at Position) int {
	written := at.Number // the number of the entry, or of the entry that the text will become
	if len(at.Characters) > 0 {
		written++
	}
	n, _ := slices.BinarySearch(v.claims, written)
	return n
}
