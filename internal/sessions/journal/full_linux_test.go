package journal

import (
	"errors"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The disk takes no more: appends fail at once, what is kept can be read, and sessions
// are kept again when there is room. The test limits the files of the whole process, so
// no other test may run beside it.
func TestDiskFull(t *testing.T) { //nolint:paralleltest // see above
	signal.Ignore(syscall.SIGXFSZ) // by default it ends the process
	defer signal.Reset(syscall.SIGXFSZ)
	j := open(t, inside(t))
	appended(t, j, ID{Session: "before"}, 0, message(j, 1, "x"))
	var unlimited syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &unlimited); err != nil {
		t.Fatal(err)
	}
	limit := unlimited
	limit.Cur = 900 << 10
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	room := func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &unlimited); err != nil {
			t.Error(err)
		}
	}
	defer room()
	text := strings.Repeat("x", 100<<10)
	var seq uint64
	var err error
	n := 0
	for ; n < 20 && err == nil; n++ {
		var next uint64
		if next, err = j.Append(t.Context(), one, seq, message(j, n+1, strconv.Itoa(n)+text)); err == nil {
			seq = next
		}
	}
	if n--; n < 5 || !errors.Is(err, ErrUnavailable) {
		t.Fatalf("append %d: %v", n+1, err)
	}
	begin := time.Now()
	for range 3 {
		if _, err := j.Append(t.Context(), ID{Session: "new"}, 0, message(j, 1, text)); !errors.Is(err, ErrUnavailable) {
			t.Errorf("appending without room: %v", err)
		}
		if err := j.Healthy(); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "file too large") {
			t.Errorf("without room: %v", err)
		}
		if _, ok := j.Row(one); !ok {
			t.Error("the row is gone")
		}
	}
	if took := time.Since(begin); took > DefaultWaits().Answer/2 { // not one of them waited for an answer
		t.Errorf("three appends without room took %v", took)
	}
	read := func() error {
		log, err := j.Read(t.Context(), one)
		if err == nil && len(log) != n {
			err = errors.New("messages: " + strconv.Itoa(len(log)))
		}
		return err
	}
	eventuallyNil(t, "reading without room", read)
	if err := j.Healthy(); err == nil {
		t.Error("healthy without room")
	}
	room()
	eventuallyNil(t, "kept again", j.Healthy)
	if err := read(); err != nil {
		t.Error(err)
	}
	appended(t, j, one, seq, message(j, n+1, text))
}
