package stage3

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/councild/councild/internal/anonymize"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit/growth"
	"github.com/google/go-cmp/cmp"
)

// quoted returns answers by the members a, b, c and so on, of which a and a#2 are one model.
func quoted(answers ...string) Quoted {
	q := Quoted{Answers: map[string]string{}}
	for i, answer := range answers {
		member := string(rune('a' + i))
		if strings.HasPrefix(answer, "twin: ") {
			member = "a#2"
		}
		q.Slate = append(q.Slate, council.Shown{Label: anonymize.LabelAt(i), Member: member})
		q.Answers[member] = answer
	}
	q.Same = func(member, other string) bool { return council.ModelOf(member) == council.ModelOf(other) }
	return q
}

// said is a claim with quotes in the form "1: text".
func said(text string, quotes ...string) string {
	list := []string{}
	for _, q := range quotes {
		label, quote, _ := strings.Cut(q, ": ")
		data, _ := json.Marshal(map[string]string{"answer": "Answer " + label, "quote": quote})
		list = append(list, string(data))
	}
	return fmt.Sprintf(`{"claim": %q, "quotes": [%s]}`, text, strings.Join(list, ", "))
}

func tailOf(agreed, disputed, only, open string) string {
	return fmt.Sprintf("%s\n```json\n{\"agreed\": [%s], \"disputed\": [%s], \"only_one_said\": [%s], \"open\": [%s]}\n```\n",
		separator, agreed, disputed, only, open)
}

func dispute(about string, sides ...string) string {
	return fmt.Sprintf(`{"about": %q, "sides": [%s]}`, about, strings.Join(sides, ", "))
}

// wrote is a map as the test tables write it: one line for each quote.
func wrote(m council.Map) (lines []string) {
	add := func(list string, claims []council.Claim) {
		for _, c := range claims {
			for _, q := range c.Quotes {
				lines = append(lines, fmt.Sprintf("%s %s | %s: %s", list, c.Claim, q.Model, q.Quote))
			}
		}
	}
	add("agreed", m.Agreed)
	for _, d := range m.Disputed {
		add("disputed "+d.About, d.Sides)
	}
	add("only", m.OnlyOneSaid)
	for _, o := range m.Open {
		lines = append(lines, "open "+o)
	}
	return lines
}

func TestReadMap(t *testing.T) {
	long := strings.Repeat("word ", 70)
	for _, tt := range []struct {
		name    string
		tail    string
		in      Quoted
		want    []string
		dropped int
	}{
		{
			name: "agreed", in: quoted("With WAL, there is one writer.", "There is one writer at a time."),
			tail: tailOf(said("one writer", "1: there is one writer", "2: one writer at a time"), "", "", ""),
			want: []string{"agreed one writer | a: there is one writer", "agreed one writer | b: one writer at a time"},
		},
		{
			name: "agreed by one model", dropped: 3, in: quoted("There is one writer.", "twin: there is one writer, always", "None."),
			tail: tailOf(said("one writer", "1: There is one writer", "2: there is one writer", "1: There is one writer."), "", "", ""),
		},
		{
			name: "folded", in: quoted("It’s **really** “one\n  writer” – at\u00a0a time…", "It's really one writer: `x_y` says so"),
			tail: tailOf(said("c", `1: It's really "one writer" - at a time...`, "2: one writer: xy says so"), "", "", ""),
			want: []string{
				"agreed c | a: It’s **really** “one\n  writer” – at\u00a0a time…", "agreed c | b: one writer: `x_y` says so",
			},
		},
		{
			name: "marks at the edges", in: quoted("a **one writer only** b", "_one_ writer and no more"),
			tail: tailOf(said("c", "1: one writer only", "2: one writer and"), "", "", ""),
			want: []string{"agreed c | a: **one writer only**", "agreed c | b: _one_ writer and"},
		},
		{
			name: "short, long, invented and of nobody", dropped: 5, in: quoted("There is one writer. "+long, "There is one writer, they say."),
			tail: tailOf(said("c", "1: There is one writer", "2: There is one writer", "1: one", "1: "+long, "2: there are two writers", "9: There is one writer",
				"1: There is one writer."), "", "", ""),
			want: []string{"agreed c | a: There is one writer", "agreed c | b: There is one writer"},
		},
		{
			name: "disputed", in: quoted("Readers do not block the writer.", "A long read blocks every write.", "Readers do not block the writer!"),
			tail: tailOf("", dispute("Does a long read hold up the writer?", said("no", "1: Readers do not block", "3: Readers do not block the writer!"), said("yes", "2: A long read blocks every")), "", ""),
			want: []string{
				"disputed Does a long read hold up the writer? no | a: Readers do not block",
				"disputed Does a long read hold up the writer? no | c: Readers do not block the writer!",
				"disputed Does a long read hold up the writer? yes | b: A long read blocks every",
			},
		},
		{
			name: "identical answers", dropped: 2, in: quoted("Some read. A long read blocks.", "Some read. A long read blocks."),
			tail: tailOf("", dispute("Do reads block?", said("no", "1: Some read. A"), said("yes", "2: A long read blocks.")), "", ""),
		},
		{
			name: "one answer on both sides", dropped: 2, in: quoted("Some reads block. Others do not block.", "Nothing."),
			tail: tailOf("", dispute("Do reads block?", said("yes", "1: Some reads block."), said("no", "1: Others do not block.")), "", ""),
		},
		{
			name: "a quote of both sides", dropped: 1, in: quoted("One writer at a time. Reads block.", "One writer at a time. Reads do not block.", "x"),
			tail: tailOf("", dispute("?", said("yes", "1: One writer at a time.", "1: Reads block."), said("no", "2: Reads do not block.")), "", ""),
			want: []string{"disputed ? yes | a: Reads block.", "disputed ? no | b: Reads do not block."},
		},
		{
			name: "only one said", dropped: 1, in: quoted("Litestream copies it. One writer at a time.", "One writer at a time."),
			tail: tailOf("", "", said("copies", "1: Litestream copies it.", "1: One writer at a time."), ""),
			want: []string{"only copies | a: Litestream copies it."},
		},
		{
			name: "two said", dropped: 2, in: quoted("Litestream copies it.", "Litestream is good.", "Litestream copies it."),
			tail: tailOf("", "", said("copies", "1: Litestream copies it.")+","+said("litestream", "1: Litestream copies", "2: Litestream is good"), ""),
			want: []string{"only litestream | b: Litestream is good"},
		},
		{
			name: "open, on one line, and labels", in: quoted("x", "y"),
			tail: tailOf("", "", "", `"How many\n writes does Answer 2 mean?", " ", "Answer 3?"`),
			want: []string{"open How many writes does b mean?", "open Answer 3?"},
		},
		{
			name: "more than five", dropped: 1, in: quoted("It is one writer of a kind", "It is one writer of a kind"),
			tail: tailOf(strings.Repeat(said("c", "1: one writer of a kind", "2: one writer of a kind")+",", 5)+said("c", "1: one writer of a kind"), "", "",
				`"1", "2", "3", "4", "5", "6"`),
			want: append(slicesRepeat([]string{"agreed c | a: one writer of a kind", "agreed c | b: one writer of a kind"}, 5),
				"open 1", "open 2", "open 3", "open 4", "open 5"),
		},
		{
			name: "claims that cannot be printed", dropped: 4, in: quoted("There is one writer.", "There is one writer."),
			tail: tailOf(said(" ", "1: There is one writer", "2: There is one writer")+","+said(long, "1: There is one writer", "2: There is one writer"), "", "", ""),
		},
		{
			name: "a part that is too long to print", dropped: 1, in: quoted("There is "+strings.Repeat("*", maxSpan)+"one writer.", "x"),
			tail: tailOf("", "", said("c", "1: There is one writer"), ""),
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := ReadMap(tt.tail, false, tt.in)
			if m.Reason != nil {
				t.Fatalf("there is no map: %s", *m.Reason)
			}
			if diff := cmp.Diff(tt.want, wrote(m)); diff != "" {
				t.Error(diff)
			}
			if m.Dropped != tt.dropped {
				t.Errorf("%d quotes were dropped, want %d", m.Dropped, tt.dropped)
			}
		})
	}
}

func slicesRepeat(list []string, n int) (all []string) {
	for range n {
		all = append(all, list...)
	}
	return all
}

func TestReadMapReasons(t *testing.T) {
	in := quoted("There is one writer.", "There is one writer.")
	for _, tt := range []struct {
		name, tail string
		cut        bool
		want       council.MapReason
	}{
		{"nothing", "", false, council.MapNone},
		{"nothing, and the answer ends at the limit", "", true, council.MapNone},
		{"only the line", separator + "\n```\n", false, council.MapNone},
		{"cut off behind the line", separator + "\n", true, council.MapCutOff},
		{"cut off in a fence", separator + "\n```js", true, council.MapCutOff},
		{"cut off", separator + emptyMap[:20], false, council.MapCutOff},
		{"prose", separator + "\nThey agree.", false, council.MapNotJSON},
		{"not JSON", separator + "\n{agreed: none}", false, council.MapNotJSON},
		{"too deep", separator + "\n" + strings.Repeat(`{"a":`, 20000), false, council.MapNotJSON},
		{"a field is missing", separator + `{"agreed": [], "disputed": [], "open": []}`, false, council.MapSchema},
		{"a field is null", separator + `{"agreed": [], "disputed": [], "only_one_said": null, "open": []}`, false, council.MapSchema},
		{"a field more", separator + emptyMap[:len(emptyMap)-1] + `, "note": 1}`, false, council.MapSchema},
		{"a claim is text", tailOf(`"one writer"`, "", "", ""), false, council.MapSchema},
		{"a claim without quotes", tailOf(`{"claim": "one writer"}`, "", "", ""), false, council.MapSchema},
		{"a quote without an answer", tailOf(`{"claim": "c", "quotes": [{"quote": "one"}]}`, "", "", ""), false, council.MapSchema},
		{"a dispute without sides", tailOf("", `{"about": "c"}`, "", ""), false, council.MapSchema},
		{"most quotes are invented", tailOf(said("c", "1: There is one writer", "2: There are two writers", "2: There are three writers"), "", "", ""), false, council.MapQuotesInvented},
	} {
		m := ReadMap(tt.tail, tt.cut, in)
		if m.Reason == nil || *m.Reason != tt.want || m.Agreed != nil || m.Disputed != nil || m.OnlyOneSaid != nil || m.Open != nil {
			t.Errorf("%s: want %s, got %+v", tt.name, tt.want, m)
		}
	}
	half := tailOf(said("c", "1: There is one writer", "2: There are two writers"), "", "", "")
	if m := ReadMap(half, false, in); m.Reason != nil || m.Dropped != 2 {
		t.Errorf("with half of the quotes invented the map is %+v", m)
	}
	if m := ReadMap(separator+emptyMap, true, in); m.Reason != nil {
		t.Errorf("a whole map at the token limit is refused: %s", *m.Reason)
	}
}

// Checking a hostile map takes time in proportion to the answers.
func TestReadMapIsLinear(t *testing.T) {
	for _, part := range []string{"a", "*", "a*", " ", "aaaaaaaaaaaaaaaab", "…"} {
		quote := strings.Repeat(part, maxQuote/len([]rune(part))-1) + "b"
		sides := make([]string, maxSides)
		for i := range sides {
			sides[i] = said("c", slicesRepeat([]string{fmt.Sprintf("%d: %s", 1+i%2, quote)}, maxQuotes)...)
		}
		tail := tailOf(strings.Join(slicesRepeat(sides[:1], maxEntries), ","), strings.Join(slicesRepeat([]string{dispute("?", sides...)}, maxEntries), ","), "", "")
		took := growth.Linear(t, func(n int) func() {
			in := quoted(strings.Repeat(part, n/len(part)/2)+"b", strings.Repeat(part, n/len(part)/2)+"b")
			return func() { ReadMap(tail, false, in) }
		})
		t.Logf("%q: %v", part, took)
	}
}

// Whatever the chairman writes, each quote of a map stands in the answer of its member, byte for byte.
func FuzzReadMap(f *testing.F) {
	f.Add(tailOf(said("c", "1: there is one writer", "2: one writer at a time"), "", "", ""), "With WAL, there is one writer.", "There is one writer at a time.")
	f.Add(tailOf("", dispute("?", said("no", "1: It’s *not* so at all"), said("yes", "2: it is so, “surely”")), "", `"Answer 1?"`), "It's\u00a0not so at all…", "_it_ is so, \"surely\"")
	f.Add(tailOf("", "", said("c", "2: — one — two — three"), ""), "x", "— one —\n\ntwo  – three\xff")
	f.Fuzz(func(t *testing.T, tail, one, two string) {
		in := quoted(one, two)
		m := ReadMap(tail, false, in)
		lists := [][]council.Claim{m.Agreed, m.OnlyOneSaid}
		for _, d := range m.Disputed {
			if len(d.Sides) < 2 {
				t.Fatalf("a dispute has %d sides", len(d.Sides))
			}
			lists = append(lists, d.Sides)
		}
		for _, claims := range lists {
			if len(claims) > maxSides {
				t.Fatalf("a list has %d entries", len(claims))
			}
			for _, c := range claims {
				if c.Claim == "" || len(c.Quotes) == 0 {
					t.Fatalf("a claim is %+v", c)
				}
				for _, q := range c.Quotes {
					if !strings.Contains(in.Answers[q.Model], q.Quote) || len(q.Quote) > maxSpan {
						t.Fatalf("the quote %q does not stand in %q", q.Quote, in.Answers[q.Model])
					}
				}
			}
		}
		if m.Dropped < 0 {
			t.Fatalf("%d quotes were dropped", m.Dropped)
		}
		if data, err := json.Marshal(m); err != nil {
			t.Fatal(err)
		} else if again := new(council.Map); json.Unmarshal(data, again) != nil {
			t.Fatalf("%s cannot be read", data)
		}
	})
}
