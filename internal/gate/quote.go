package gate

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// minQuote is the fewest characters of a folded quote that can show where a defect is.
const minQuote = 12

// place is a range of lines in a file.
type place struct {
	side     int // the index in file.sides
	from, to int // indices of lines in file.lines, both included
}

// The sides of a file, in the order in which quotes are searched there.
const (
	newSide = iota // without removed lines
	bothSides
	oldSide // without added lines
	sides
)

// side is the folded text of one side of a file.
type side struct {
	text   string
	starts []int // where each line begins in text
	lines  []int // their indices in file.lines
}

// on reports whether a line belongs to a side.
func (l line) on(side int) bool {
	return side == bothSides || l.sign == ' ' || (l.sign == '+') == (side == newSide)
}

// fold returns a line without the signs + and - at its beginning, and with single blanks.
func fold(text string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, text)
	return strings.Join(strings.Fields(strings.TrimLeft(text, "+- ")), " ")
}

// foldLines folds each line of a text, and joins the lines that are not blank.
func foldLines(text string) string {
	var folded []string
	for l := range strings.Lines(text) {
		if l = fold(l); l != "" {
			folded = append(folded, l)
		}
	}
	return strings.Join(folded, " ")
}

// foldSides makes the folded sides of a file. Hunks are divided by a character that no quote has.
func (f *file) foldSides() {
	for s := range f.sides {
		var b strings.Builder
		hunk := 0
		for i, l := range f.lines {
			folded := fold(l.text)
			if !l.on(s) || folded == "" {
				continue
			}
			if l.hunk != hunk {
				b.WriteByte(0)
				hunk = l.hunk
			}
			f.sides[s].starts = append(f.sides[s].starts, b.Len())
			f.sides[s].lines = append(f.sides[s].lines, i)
			b.WriteString(folded + " ")
		}
		f.sides[s].text = b.String()
	}
}

// find returns the places of a folded quote on a side. An empty quote, as of blank lines, has none.
func (f *file) find(quote string, of int) (places []place) {
	s := f.sides[of]
	lineAt := func(at int) int {
		i, exact := slices.BinarySearch(s.starts, at)
		if !exact {
			i--
		}
		return s.lines[i]
	}
	for at := 0; quote != ""; {
		i := strings.Index(s.text[at:], quote)
		if i < 0 {
			break
		}
		found := place{side: of, from: lineAt(at + i), to: lineAt(at + i + len(quote) - 1)}
		if len(places) == 0 || places[len(places)-1] != found {
			places = append(places, found)
		}
		at += i + len(quote)
	}
	return places
}

// places returns where a folded quote stands in a file. It prefers the lines of the new file.
func (f *file) places(quote string) []place {
	for s := range f.sides {
		if found := f.find(quote, s); found != nil {
			return found
		}
	}
	return nil
}

// called reports whether a member may mean this file by a name.
func (f *file) called(name string) bool {
	name = strings.TrimPrefix(strings.TrimSpace(name), "./")
	return slices.Contains([]string{f.name, f.old, "a/" + f.old, "b/" + f.name}, name)
}

// locate returns where a quote stands. If the named file has several such places, locate takes the one closest to the
// line. If the named file has none, the quote must stand exactly once in the other files. Otherwise it returns false.
func (c *change) locate(name, quote string, number int) (f *file, at place, ok bool) {
	folded := foldLines(quote)
	if len(quote) > maxQuote || utf8.RuneCountInString(folded) < minQuote {
		return nil, place{}, false
	}
	elsewhere := 0
	best := 0
	named := false
	for _, candidate := range c.files {
		called := candidate.called(name)
		if named && !called {
			continue
		}
		for _, p := range candidate.places(folded) {
			distance := candidate.start(p) - number
			distance = max(distance, -distance)
			if called && (!named || distance < best) || !called && elsewhere == 0 {
				f, at, best = candidate, p, distance
			}
			named = named || called
			if !called {
				elsewhere++
			}
		}
	}
	return f, at, named || elsewhere == 1
}

// run returns the lines of a place.
func (f *file) run(p place) (run []line) {
	for _, l := range f.lines[p.from : p.to+1] {
		if l.on(p.side) {
			run = append(run, l)
		}
	}
	return run
}

// removed reports whether a place has only removed lines.
func (f *file) removed(p place) bool {
	return !slices.ContainsFunc(f.run(p), func(l line) bool { return l.sign != '-' })
}

// start returns the first line of a place in the new file.
func (f *file) start(p place) int { return f.numbers(p)[0] }

// end returns the last line of a place in the new file.
func (f *file) end(p place) int { return slices.Max(f.numbers(p)) }

// numbers returns the lines of a place in the new file. If all its lines are removed, it returns the line that follows
// them.
func (f *file) numbers(p place) (numbers []int) {
	for _, l := range f.run(p) {
		if l.sign != '-' {
			numbers = append(numbers, l.at)
		}
	}
	if numbers == nil {
		return []int{f.lines[p.from].at}
	}
	return numbers
}

// quote returns the lines of a place as they stand in the diff. It does not return what the member wrote.
func (f *file) quote(p place) string {
	run := f.run(p)
	lines := make([]string, len(run))
	for i, l := range run {
		lines[i] = l.text
	}
	return cut(strings.Join(lines, "\n"), maxQuote)
}

// cut returns the first n bytes of a text, without a partial character at the end.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "")
}

// fingerprint identifies a place by the file and the folded lines, so it stays the same when the lines move. A number
// tells places with the same lines apart.
func (f *file) fingerprint(p place) string {
	run := f.run(p)
	lines := make([]string, len(run))
	for i, l := range run {
		lines[i] = l.text
	}
	folded := foldLines(strings.Join(lines, "\n"))
	sum := sha256.Sum256([]byte(f.name + "\x00" + folded))
	places := f.find(folded, p.side)
	at, _ := slices.BinarySearchFunc(places, p, func(a, b place) int { return cmp.Compare(a.from, b.from) })
	return hex.EncodeToString(sum[:8]) + ":" + strconv.Itoa(at+1)
}
