package batch

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/disk"
)

// slowDisk is a file whose Sync ends when released is closed.
type slowDisk struct {
	disk.File
	syncing, released chan struct{}
}

func (s slowDisk) Sync() error {
	close(s.syncing)
	<-s.released
	return s.File.Sync()
}

type answer string

func (a answer) Complete(context.Context, council.Call) (council.Completion, error) {
	return council.Completion{Text: string(a)}, nil
}

// The accounts tell what calls cost while they hold their own lock, so they must not wait for a disk.
func TestBillDoesNotWaitForTheDisk(t *testing.T) {
	calls, err := OpenCalls(filepath.Join(t.TempDir(), "out.calls"), "plan")
	if err != nil {
		t.Fatal(err)
	}
	slow := slowDisk{calls.file, make(chan struct{}), make(chan struct{})}
	calls.file = slow
	call := council.Call{Session: "s", Stage: council.Stage1, Seat: "amber"}
	kept := make(chan error)
	go func() {
		_, err := calls.Completer(answer("yes")).Complete(t.Context(), call)
		kept <- err
	}()
	<-slow.syncing
	billed := make(chan float64)
	go func() {
		calls.Bill("s", 0.25)
		billed <- calls.Cost("s")
	}()
	select {
	case cost := <-billed:
		if cost != 0.25 || len(calls.Landed("s")) != 0 {
			t.Errorf("cost %v, %d calls landed before they are on the disk", cost, len(calls.Landed("s")))
		}
	case <-time.After(20 * time.Second):
		t.Error("the bill waits for the disk")
	}
	close(slow.released)
	if err := <-kept; err != nil || len(calls.Landed("s")) != 1 {
		t.Errorf("%v, %d calls landed", err, len(calls.Landed("s")))
	}
	if err := calls.Close(); err != nil {
		t.Error(err)
	}
}
