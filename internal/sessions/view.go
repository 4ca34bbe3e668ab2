package sessions

import (
	"slices"
	"unicode/utf8"

	"github.com/councild/councild/internal/council"
)

// view is what is shown of a log: its entries in order, and behind them the text that
// is on its way.
type view struct {
	events  []council.Event // as they were observed, or read
	entries []council.Entry // the encoded events
	encoded int             // how many of events are encoded, without those that cannot be
	text    []piece
	encoder encoder
}

// piece is a part of a text, and how many characters the text has with it.
type piece struct {
	entry council.Entry
	end   int
}

// Page is what follows a position in a log: entries, and then pieces of a text.
type Page struct {
	Entries []council.Entry
	behind  int   // the number of the entry before
	ends    []int // of the pieces, in characters
}

// Position returns the place behind entry i.
func (p Page) Position(i int) Position {
	if whole := len(p.Entries) - len(p.ends); i >= whole {
		return Position{Number: p.behind + whole, Characters: p.ends[i-whole]}
	}
	return Position{Number: p.behind + 1 + i}
}

// page returns what follows a position. The events must be encoded.
func (v *view) page(behind Position) Page {
	p := Page{behind: min(behind.Number, len(v.entries))}
	p.Entries = v.entries[p.behind:]
	seen := behind.Characters
	if len(p.Entries) > 0 {
		if seen > 0 && p.Entries[0].Type == council.EventDelta {
			if rest, ok := v.behind(p.Entries[0], seen); ok {
				p.Entries = slices.Clone(p.Entries)
				p.Entries[0] = rest
			} else {
				p.Entries, p.behind = p.Entries[1:], p.behind+1
			}
		}
		seen = 0
	}
	p.Entries = slices.Clip(p.Entries) // the view goes on behind it
	begin := 0
	for _, part := range v.text {
		entry, there := part.entry, part.end > seen
		if there && begin < seen {
			entry, there = v.behind(entry, seen-begin)
		}
		if there {
			p.Entries, p.ends = append(p.Entries, entry), append(p.ends, part.end)
		}
		begin = part.end
	}
	return p
}

// behind returns a piece of text without its first characters. ok is false where
// nothing is left.
func (v *view) behind(e council.Entry, characters int) (rest council.Entry, ok bool) {
	text := textOf(e)
	for ; characters > 0 && text != ""; characters-- { // a client says how many
		_, size := utf8.DecodeRuneInString(text)
		text = text[size:]
	}
	if text == "" {
		return e, false
	}
	data, err := v.encoder.encode(council.Delta{Text: text})
	return council.Entry{Type: e.Type, Data: data[:max(0, len(data)-1)]}, err == nil
}

// textOf returns the text of an EventDelta.
func textOf(e council.Entry) string {
	event, err := e.Decode()
	delta, _ := event.Data.(council.Delta)
	if err != nil {
		return ""
	}
	return delta.Text
}

// show appends an event with its entry, and ends the text that it follows.
func (v *view) show(e council.Event, entry council.Entry) {
	v.events, v.entries = append(v.events, e), append(v.entries, entry)
	v.encoded, v.text = len(v.events), nil
}

// write appends to the text that is on its way.
func (v *view) write(text string, entry council.Entry) {
	v.text = append(v.text, piece{entry, v.characters() + utf8.RuneCountInString(text)})
}

// characters returns how long the text is that is on its way.
func (v *view) characters() int {
	if n := len(v.text); n > 0 {
		return v.text[n-1].end
	}
	return 0
}
