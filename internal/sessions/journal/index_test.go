package journal

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/councild/councild/internal/council"
)

// What a consumer brings late of a log that was purged is no row.
func TestIndexDrop(t *testing.T) {
	t.Parallel()
	x := newIndex()
	build := x.begin()
	x.filled(build)
	p := part{header: header{First: 1, Count: 1}, seq: 5}
	x.put(build, one, p)
	x.drop(one, 5)
	x.put(build, one, p)
	if row, ok := x.get(one); ok {
		t.Errorf("purged, the row is %+v", row)
	}
	p.seq = 6
	x.put(build, one, p)
	if _, ok := x.get(one); !ok {
		t.Error("a new log has no row")
	}
}

// What the index says of all sessions is what its rows say one by one, also of sessions whose parts come twice, in
// another order, late or after a purge, and while it is built again.
func TestIndexAnswers(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	x := newIndex()
	j := &Journal{index: x}
	build, parts := 0, map[ID][]part{}
	for step := range 5_000 {
		id := ID{Session: strconv.Itoa(random.IntN(40))}
		switch {
		case random.IntN(100) == 0:
			build = x.begin()
		case random.IntN(50) == 0:
			x.filled(build)
		case random.IntN(20) == 0:
			x.drop(id, uint64(step-random.IntN(100)))
		case random.IntN(3) > 0 && len(parts[id]) > 0:
			x.put(build, id, parts[id][random.IntN(len(parts[id]))])
		default:
			p := part{header: header{Head: Head{Status: council.StatusRunning}, First: 1, Count: 1}, seq: uint64(step) + 1}
			if random.IntN(2) == 0 {
				p.Status, p.Bytes = council.StatusComplete, int64(random.IntN(1000))
			}
			if random.IntN(2) == 0 {
				p.Key = "key of " + id.Session
			}
			parts[id] = append(parts[id], p)
			x.put(0, id, p)
		}

		var running, ended []IndexRow
		bytes, keyed := int64(0), 0
		for _, row := range x.rows.rows {
			if row.runs() {
				running = append(running, *row)
			} else {
				ended, bytes = append(ended, *row), bytes+row.Bytes
			}
			got, ok := j.Keyed("key of " + row.Session)
			if ok != (row.Key != "") || ok && got.ID != row.ID {
				t.Fatalf("step %d: keyed %v %+v, the row is %+v", step, ok, got, row)
			}
			if ok {
				keyed++
			}
		}
		slices.SortFunc(ended, func(a, b IndexRow) int { return cmp.Compare(b.Seq, a.Seq) })
		if got := j.Newest(math.MaxInt, func(*IndexRow) bool { return true }); !slices.Equal(got, ended) {
			t.Fatalf("step %d: the newest are %+v, of %+v", step, got, ended)
		}
		row, n, sum := j.Oldest()
		if n != len(ended) || sum != bytes || n > 0 && row != ended[n-1] {
			t.Fatalf("step %d: of %d sessions with %d bytes the oldest is %+v, not of %d with %d in %+v", step, n, sum, row, len(ended), bytes, ended)
		}
		if got := j.Unended(); len(got) != len(running) || slices.ContainsFunc(running, func(r IndexRow) bool { return !slices.Contains(got, r) }) {
			t.Fatalf("step %d: %+v run, not %+v", step, got, running)
		}
		rows := j.Rows("")
		if len(rows) != len(x.rows.rows) || slices.ContainsFunc(rows, func(r *IndexRow) bool { return x.rows.rows[r.ID] != r }) ||
			!slices.IsSortedFunc(rows[len(running):], func(a, b *IndexRow) int { return cmp.Compare(b.Seq, a.Seq) }) {
			t.Fatalf("step %d: the rows are %+v", step, rows)
		}
		if rows := j.Rows("somebody else"); rows != nil {
			t.Fatalf("step %d: rows of somebody else: %+v", step, rows)
		}
		if len(x.rows.keys) != keyed {
			t.Fatalf("step %d: %d keys, not %d", step, len(x.rows.keys), keyed)
		}
	}
}
