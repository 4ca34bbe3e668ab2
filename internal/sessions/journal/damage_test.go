package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit"
)

// filled keeps sessions in a directory, every fourth of which has not ended, and returns a
// copy of the directory as a process leaves it that is killed, and the log of each.
func filled(t *testing.T, o Options, sessions int) (dir string, logs map[ID][]Stored) {
	t.Helper()
	j := open(t, o)
	logs = map[ID][]Stored{}
	seqs := make([]uint64, sessions)
	for n := range 4 { // the logs are mixed
		for i := range sessions {
			id := ID{Owner: "ada", Session: fmt.Sprint("s", i)}
			m := message(j, n+1, fmt.Sprintf("%d of %d %s", n, i, strings.Repeat("text ", 30+i)))
			if n == 3 && i%4 > 0 {
				m.Status = council.StatusComplete
			}
			seqs[i] = appended(t, j, id, seqs[i], m)
		}
	}
	for i := range sessions {
		id := ID{Owner: "ada", Session: fmt.Sprint("s", i)}
		log, err := j.Read(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		logs[id] = log
	}
	dir = copied(t, o.Dir)
	closeJournal(t, j)
	return dir, logs
}

// copied returns a copy of a directory.
func copied(t *testing.T, from string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func blockOf(dir string, number int) string {
	return stream{dir: streamDir(dir, "COUNCIL_SESSIONS")}.file(number)
}

// change changes the content of a file.
func change(t *testing.T, path string, to func(data []byte) []byte) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, to(data), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// flip returns data with one bit flipped.
func flip(at int) func([]byte) []byte {
	return func(data []byte) []byte {
		data[at] ^= 1 << (at % 8)
		return data
	}
}

// places returns where the records of a block begin.
func places(t *testing.T, path string) (list []int, size int) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := newBlock("COUNCIL_SESSIONS", blockNumber(path), data)
	if err != nil {
		t.Fatal(err)
	}
	b.scan(0, true, func(r record) { list = append(list, r.from) }, func(h hole) { t.Fatalf("a hole: %+v", h) })
	return list, len(data)
}

// Whatever bit of a block is flipped, a scan finds one damaged place at most, and every other
// record.
func TestScanFlipped(t *testing.T) {
	t.Parallel()
	dir, _ := filled(t, inside(t), 4)
	path := blockOf(dir, 1)
	begins, size := places(t, path)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	repaired := 0
	for at := range size {
		for bit := range 8 {
			data := slices.Clone(whole)
			data[at] ^= 1 << bit
			b, err := newBlock("COUNCIL_SESSIONS", 1, data)
			if err != nil {
				t.Fatal(err)
			}
			var seen []int
			var holes []hole
			s := b.scan(0, true, func(r record) { seen = append(seen, r.from) }, func(h hole) { holes = append(holes, h) })
			mine, _ := slices.BinarySearch(begins, at+1)
			mine--
			switch {
			case s.repaired == 1 && len(holes) == 0 && slices.Equal(seen, begins) && slices.Equal(data, whole):
				repaired++
			case s.repaired == 0 && s.end == size && len(holes) == 1 && holes[0].from == begins[mine] &&
				slices.Equal(seen, slices.Delete(slices.Clone(begins), mine, mine+1)):
			default:
				t.Fatalf("bit %d of byte %d, record %d: %d repaired, holes %+v, end %d of %d, seen %v of %v", bit, at, mine, s.repaired, holes,
					s.end, size, seen, begins)
			}
		}
	}
	if repaired < 32*len(begins) {
		t.Errorf("%d repaired of %d records: their lengths have 32 bits each", repaired, len(begins))
	}
}

// FuzzScan reads any bytes as a block, alone and behind a whole record, which is found.
func FuzzScan(f *testing.F) {
	b, err := newBlock("S", 1, nil)
	if err != nil {
		f.Fatal(err)
	}
	whole := sealed(b, 7, "a.session._.b", "body")
	f.Add([]byte{})
	f.Add(whole)
	f.Add(whole[:40])
	f.Add(append(make([]byte, 600), whole...))
	f.Add(append(slices.Clone(whole[:recordHead]), whole...))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, before := range [][]byte{nil, whole} {
			b.data = append(slices.Clone(before), data...)
			at, seen := 0, 0
			s := b.scan(0, true, func(r record) {
				if r.from != at {
					t.Errorf("a record at %d, and %d was reached", r.from, at)
				}
				at = r.to
				seen++
			}, func(h hole) {
				if h.from != at || h.to <= h.from {
					t.Errorf("a hole %+v, and %d was reached", h, at)
				}
				at = h.to
			})
			if at != s.end || s.end > len(b.data) || before != nil && seen == 0 {
				t.Errorf("the end is %d of %d, %d was reached, %d records", s.end, len(b.data), at, seen)
			}
		}
	})
}

// state is what is left of sessions.
type state struct {
	whole, damaged, cut, gone []ID
	problem                   string
	shorter                   []ID // that had not ended, and go on with less than they had
}

// left opens a directory and says what is left of sessions.
func left(t *testing.T, o Options, logs map[ID][]Stored) (s state) {
	t.Helper()
	j, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer closeJournal(t, j)
	for id, want := range logs {
		var log []Stored
		eventuallyNil(t, "the log", func() error {
			log, err = j.Read(t.Context(), id)
			if errors.Is(err, ErrUnavailable) {
				return err
			}
			return nil
		})
		_, damaged := errors.AsType[*Damaged](err)
		row, there := j.Row(id)
		ended := want[len(want)-1].Status != council.StatusRunning
		switch {
		case cmp.Equal(texts(want), texts(log)):
			s.whole = append(s.whole, id)
		case len(log) == 0:
			s.gone = append(s.gone, id)
		case damaged:
			s.damaged = append(s.damaged, id)
		default:
			s.cut = append(s.cut, id)
		}
		if ended && there && row.runs() && !j.LostPart(id) {
			t.Errorf("%v had ended, and would run again", id)
		}
		if !ended && len(log) < len(want) && there && !damaged && !j.LostPart(id) {
			s.shorter = append(s.shorter, id)
		}
	}
	for _, d := range j.Damages() {
		s.problem += d.Problem() + "\n"
	}
	return s
}

// A damaged block costs what is damaged, and is said until it is accepted.
func TestDamagedBlock(t *testing.T) {
	t.Parallel()
	o := inside(t)
	const sessions = 8
	dir, logs := filled(t, o, sessions)
	begins, size := places(t, blockOf(dir, 1))
	last := begins[len(begins)-1]
	indexDB := filepath.Join(filepath.Dir(blockOf(dir, 1)), engineState)
	type damage struct {
		name   string
		do     func(t *testing.T, dir string)
		worst  int    // sessions that are not whole, at most
		silent bool   // nothing is lost, and nothing is said
		says   string // in the problem
	}
	edit := func(to func([]byte) []byte) func(*testing.T, string) {
		return func(t *testing.T, dir string) { t.Helper(); change(t, blockOf(dir, 1), to) }
	}
	all := []damage{
		{"nothing", func(*testing.T, string) {}, 0, true, ""},
		{"the first record", edit(flip(begins[0] + 100)), 1, false, "1 entry is missing"},
		{"an end", edit(flip(last + 100)), 1, false, "1 session cannot go on"},
		{"the length of a record", edit(flip(begins[5] + 2)), 0, false, "1 entry was repaired"},
		{"the length of the last record", edit(flip(last + 1)), 0, false, "1 entry was repaired"},
		{"the length of a header", edit(flip(begins[5] + recordHead + len("council.session.ada.s5"))), 0, false, "1 entry was repaired"},
		{"the length of a subject", edit(flip(begins[5] + 20)), 1, false, "1 entry is missing"},
		{"a subject", edit(flip(begins[sessions*3+5] + recordHead + 21)), 1, false, "1 entry is missing"},
		{"a sequence", edit(flip(begins[9] + 4)), 1, false, "1 entry is missing"},
		{"zeros in the middle", edit(func(b []byte) []byte { clear(b[begins[9]+40 : begins[10]+40]); return b }), 2, false, "missing, or more"},
		{"cut in the middle", edit(func(b []byte) []byte { return b[:begins[sessions*3]+20] }), sessions, false, "sessions cannot go on"},
		{"cut between two records", edit(func(b []byte) []byte { return b[:begins[sessions*3]] }), sessions, false, "sessions cannot go on"},
		{"emptied", edit(func([]byte) []byte { return nil }), sessions, false, "6 sessions that had ended are gone"},
		{"removed", func(t *testing.T, dir string) {
			t.Helper()
			if err := os.Remove(blockOf(dir, 1)); err != nil {
				t.Fatal(err)
			}
		}, sessions, false, "6 sessions that had ended are gone"},
		{"all files of the engine removed", func(t *testing.T, dir string) {
			t.Helper()
			if err := os.RemoveAll(filepath.Join(dir, storeDir)); err != nil {
				t.Fatal(err)
			}
		}, sessions, false, "6 sessions that had ended are gone"},
		{"a torn tail", edit(func(b []byte) []byte { return append(b, b[begins[3]:begins[4]-10]...) }), 0, true, ""},
		{"a torn tail of zeros", edit(func(b []byte) []byte { return append(b, make([]byte, 3000)...) }), 0, true, ""},
		{"a torn tail that begins well", edit(func(b []byte) []byte {
			return append(append(b, b[begins[3]:begins[3]+60]...), make([]byte, 3000)...)
		}), 0, true, ""},
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 12 {
		at := rng.IntN(size)
		all = append(all, damage{fmt.Sprintf("byte %d", at), edit(flip(at)), 1, false, ""})
	}
	for _, index := range []bool{false, true} {
		for i, d := range all {
			if index && i%4 > 0 {
				continue
			}
			t.Run(fmt.Sprintf("%s, index %v", d.name, index), func(t *testing.T) {
				t.Parallel()
				o := o
				o.Dir = copied(t, dir)
				if index { // the engine has written its state, and would not read the blocks
					j := open(t, o)
					closeJournal(t, j)
					if err := os.Remove(filepath.Join(o.Dir, closedFile)); err != nil {
						t.Fatal(err)
					}
				}
				d.do(t, o.Dir)
				s := left(t, o, logs)
				if n := len(logs) - len(s.whole); n > d.worst {
					t.Errorf("%d sessions are not whole, want %d at most: %+v", n, d.worst, s)
				}
				if len(s.shorter) > 0 && !strings.HasPrefix(d.name, "cut") {
					t.Errorf("%v lost their newest entries, and would go on", s.shorter)
				}
				if silent := s.problem == ""; silent != d.silent || !strings.Contains(s.problem, d.says) {
					t.Errorf("it says %q, want %q", s.problem, d.says)
				}
				if taken, err := Accept(o.Dir); err != nil || (len(taken) == 0) != d.silent {
					t.Errorf("accepted %v: %v", taken, err)
				}
				if accepted := left(t, o, logs); accepted.problem != "" || len(accepted.whole) != len(s.whole) {
					t.Errorf("after it was accepted: %+v, after %+v", accepted, s)
				}
			})
		}
	}
	t.Run("the index file", func(t *testing.T) {
		t.Parallel()
		for at := range 3 {
			o := o
			o.Dir = copied(t, dir)
			j := open(t, o)
			closeJournal(t, j)
			rel, err := filepath.Rel(dir, indexDB)
			if err != nil {
				t.Fatal(err)
			}
			change(t, filepath.Join(o.Dir, rel), func(b []byte) []byte { return flip(at * len(b) / 3)(b) })
			if s := left(t, o, logs); len(s.whole) != sessions || s.problem != "" {
				t.Errorf("%+v", s)
			}
		}
	})
}

// Damage is found after the engine was closed, too: beside everything else.
func TestDamagedAfterClose(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	o := inside(t)
	dir, logs := filled(t, o, 8)
	begins, _ := places(t, blockOf(dir, 1))
	for _, at := range []int{begins[3] + 80, begins[31] + 120} {
		o := o
		o.Dir = copied(t, dir)
		closeJournal(t, open(t, o))
		change(t, blockOf(o.Dir, 1), flip(at))
		j := open(t, o)
		eventuallyNil(t, "the damage", func() error {
			if len(j.Damages()) == 0 {
				return errors.New("nothing is said")
			}
			return j.Healthy()
		})
		closeJournal(t, j)
		if s := left(t, o, logs); len(s.whole) != 7 || s.problem == "" {
			t.Errorf("byte %d: %+v", at, s)
		}
	}
}

// Of an encrypted store no block can be read: the engine cuts it off. What had ended is told
// apart all the same.
func TestDamagedEncrypted(t *testing.T) {
	t.Parallel()
	o := inside(t)
	o.Key = "secret"
	dir, logs := filled(t, o, 8)
	for _, at := range []int{200, 5000} {
		o := o
		o.Dir = copied(t, dir)
		change(t, blockOf(o.Dir, 1), flip(at))
		s := left(t, o, logs)
		if len(s.whole) == len(logs) || !strings.Contains(s.problem, "sessions") {
			t.Errorf("byte %d: %+v", at, s)
		}
	}
}

// A flipped bit in an older file, and such a file that is missing.
func TestDamagedOlderBlock(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	o := inside(t)
	j := open(t, o)
	logs := map[ID][]Stored{}
	const sessions = 20
	for n := range sessions { // 10 MiB, and a file has 8
		id := ID{Session: fmt.Sprint("s", n)}
		m := message(j, 1, strings.Repeat("x", 500<<10))
		m.Status = council.StatusComplete
		appended(t, j, id, 0, m)
		log, err := j.Read(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		logs[id] = log
	}
	dir := copied(t, o.Dir)
	closeJournal(t, j)
	if _, err := os.Stat(blockOf(dir, 2)); err != nil {
		t.Fatal(err)
	}
	for name, do := range map[string]func(dir string){
		"flipped": func(dir string) { change(t, blockOf(dir, 1), flip(3<<20)) },
		"zeros behind the older one": func(dir string) {
			change(t, blockOf(dir, 1), func(b []byte) []byte { return append(b, make([]byte, 1000)...) })
		},
		"removed": func(dir string) {
			if err := os.Remove(blockOf(dir, 1)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		o := o
		o.Dir = copied(t, dir)
		do(o.Dir)
		s := left(t, o, logs)
		worst := map[string]int{"flipped": 1, "removed": sessions - 2}[name]
		if lost := sessions - len(s.whole); lost > worst || s.problem == "" {
			t.Errorf("%s: %d sessions are lost, want %d at most: %q", name, lost, worst, s.problem)
		}
	}
}

// Sessions that were deleted are not lost.
func TestEndsForgetsDeleted(t *testing.T) {
	t.Parallel()
	o := inside(t)
	j := open(t, o)
	for i := range 4 {
		m := message(j, 1, "x")
		m.Status = council.StatusComplete
		appended(t, j, ID{Owner: "ada", Session: strconv.Itoa(i)}, 0, m)
	}
	for i := range 2 {
		if err := j.Purge(t.Context(), ID{Owner: "ada", Session: strconv.Itoa(i)}); err != nil {
			t.Fatal(err)
		}
	}
	check := func(when string) {
		t.Helper()
		had, err := readEnds(j.o.Dir)
		if want := map[ID]bool{{"ada", "2"}: true, {"ada", "3"}: true}; err != nil || !reflect.DeepEqual(had, want) {
			t.Errorf("%s: %v, %v", when, had, err)
		}
	}
	check("as written")
	if err := j.ends.renew(j.o.Dir, j.index, j.LostPart); err != nil {
		t.Fatal(err)
	}
	check("written anew")
	o.Dir = copied(t, o.Dir)
	other := open(t, o)
	if d := other.Damages(); len(d) > 0 {
		t.Errorf("%+v", d)
	}
}

// sealed returns a record as the engine writes it.
func sealed(b *block, seq uint64, subject, body string) []byte {
	head := "NATS/1.0\r\nCouncil: {}\r\n\r\n"
	size := recordHead + len(subject) + 4 + len(head) + len(body) + recordSum
	r := binary.LittleEndian.AppendUint32(nil, uint32(size)|hasHeader)
	r = binary.LittleEndian.AppendUint64(r, seq)
	r = binary.LittleEndian.AppendUint64(r, uint64(earliest))
	r = binary.LittleEndian.AppendUint16(r, uint16(len(subject)))
	r = append(r, subject...)
	r = binary.LittleEndian.AppendUint32(r, uint32(len(head)))
	r = append(append(r, head...), body...)
	b.hash.Reset()
	_, _ = b.hash.Write(r[4:20])
	_, _ = b.hash.Write([]byte(subject))
	_, _ = b.hash.Write([]byte(head + body))
	return b.hash.Sum(r)
}

// BenchmarkScan reads blocks of 8 MiB, as at a start after a crash.
func BenchmarkScan(b *testing.B) {
	var data []byte
	block, err := newBlock("COUNCIL_SESSIONS", 1, nil)
	if err != nil {
		b.Fatal(err)
	}
	for seq := uint64(1); len(data) < 8<<20; seq++ {
		data = append(data, sealed(block, seq, "council.session.ada.0196f5a0-0000-7000-8000-000000000000", strings.Repeat("text ", 800))...)
	}
	block.data = data
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		block.scan(0, true, func(record) {}, func(hole) { b.Fatal("a hole") })
	}
}
