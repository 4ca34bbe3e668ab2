package journal

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/councild/councild/internal/council"
)

// FuzzEntries reads any bytes as entries. What can be read is written as it was.
func FuzzEntries(f *testing.F) {
	f.Add([]byte("stage1.answer 2\n{}\nstage1.done 0\n\n"))
	f.Add([]byte("a 3\n\n\n\n\n"))
	f.Add([]byte("a -1\n"))
	f.Add([]byte("a 9223372036854775807\nx\n"))
	f.Fuzz(func(t *testing.T, body []byte) {
		list, err := entries(body)
		if err != nil {
			return
		}
		var again []byte
		for _, p := range cut(Message{Entries: list}) {
			again = append(again, p.body...)
		}
		back, err := entries(again)
		if err != nil {
			t.Fatalf("%q: %v", again, err)
		}
		if d := cmp.Diff(list, back); d != "" {
			t.Error(d)
		}
	})
}

// A message is cut where it is larger than a part, and is whole again behind the last one.
func TestCut(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, maxPart - 10, maxPart, 3 * maxPart} {
		m := Message{Head: Head{Status: council.StatusComplete}, First: 7, Entries: []council.Entry{
			{Type: council.EventAnswer, Data: bytes.Repeat([]byte("\n"), size)}, {Type: council.EventDone, Data: []byte("{}")},
		}}
		r := reader{next: 7}
		parts := cut(m)
		for i, p := range parts {
			if len(p.body) > maxPart || len(p.body) < maxPart && i+1 < len(parts) {
				t.Errorf("%d bytes: part %d has %d", size, i+1, len(p.body))
			}
			got, whole, damaged := r.add(p)
			if damaged != nil || whole != (i+1 == len(parts)) {
				t.Fatalf("%d bytes: part %d: whole %v, %v", size, i+1, whole, damaged)
			}
			if whole {
				if got.First != 7 || len(got.Entries) != 2 || !bytes.Equal(got.Entries[0].Data, m.Entries[0].Data) ||
					got.Entries[1].Type != council.EventDone {
					t.Errorf("%d bytes: read another message than was cut", size)
				}
			}
		}
	}
}

// A part in the middle is lost, and what is left can be read as entries: it is damage.
func TestPartLost(t *testing.T) {
	t.Parallel()
	m := Message{First: 1}
	for range 3 * maxPart / 16 {
		m.Entries = append(m.Entries, council.Entry{Type: "a", Data: []byte("0123456789")}) // 16 bytes
	}
	parts := cut(m)
	if _, err := entries(parts[1].body); len(parts) != 3 || err != nil {
		t.Fatalf("%d parts, %v", len(parts), err)
	}
	r := reader{next: 1}
	if _, whole, damaged := r.add(parts[0]); whole || damaged != nil {
		t.Errorf("the first part: whole %v, %v", whole, damaged)
	}
	if _, whole, damaged := r.add(parts[2]); whole || damaged == nil || damaged.Entry != 1 {
		t.Errorf("whole %v, %v", whole, damaged)
	}
}
