package consent_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/councild/councild/internal/consent"
	"github.com/councild/councild/internal/store"
	"github.com/councild/councild/internal/testkit/faultdisk"
	"github.com/councild/councild/internal/testkit/growth"
	"github.com/councild/councild/internal/testkit/race"
)

// clock is a time that the test sets.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func openIntake(t *testing.T, path string, c *clock) *consent.Intake {
	t.Helper()
	i, err := consent.OpenIntake(t.Context(), consent.IntakeOptions{Path: path, Log: slog.New(slog.DiscardHandler), Now: c.Now})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// event returns the text of a new event.
func event(t *testing.T) json.RawMessage {
	t.Helper()
	return json.RawMessage(valid(t))
}

// take takes events in and returns how many were accepted, duplicates and rejected.
func take(t *testing.T, i *consent.Intake, organisation string, texts ...json.RawMessage) (counts [3]int) {
	t.Helper()
	taken, err := i.Take(t.Context(), organisation, texts)
	if err != nil {
		t.Fatal(err)
	}
	return [3]int{taken.Accepted, taken.Duplicates, taken.Rejected}
}

// An event is taken once from an organisation, also in one request, after a restart and after a crash; another organisation's
// event with the same id is another one.
func TestIntakeKnowsDuplicates(t *testing.T) {
	path, c := filepath.Join(t.TempDir(), "intake.jsonl"), &clock{now: began}
	i := openIntake(t, path, c)
	one, two := event(t), event(t)
	for _, step := range []struct {
		organisation string
		events       []json.RawMessage
		want         [3]int
	}{
		{"a", []json.RawMessage{one, one, two}, [3]int{2, 1, 0}},
		{"a", []json.RawMessage{two, json.RawMessage(`{}`)}, [3]int{0, 1, 1}},
		{"b", []json.RawMessage{one}, [3]int{1, 0, 0}},
		{"b", nil, [3]int{}},
	} {
		if got := take(t, i, step.organisation, step.events...); got != step.want {
			t.Errorf("%s sends %d events: %v, want %v", step.organisation, len(step.events), got, step.want)
		}
	}
	if err := i.Close(); err != nil {
		t.Fatal(err)
	}
	i = openIntake(t, path, c)
	if got := take(t, i, "a", one, two, event(t)); got != [3]int{1, 2, 0} {
		t.Errorf("after a restart: %v", got)
	}
	if err := i.Close(); err != nil {
		t.Fatal(err)
	}
}

// Events that come at once from many connections are each accepted once.
func TestIntakeAtOnce(t *testing.T) {
	path, c := filepath.Join(t.TempDir(), "intake.jsonl"), &clock{now: began}
	i := openIntake(t, path, c)
	var all []json.RawMessage
	for range 50 {
		all = append(all, event(t))
	}
	accepted := make([]int, 8)
	var sending sync.WaitGroup
	for k := range accepted {
		sending.Go(func() { accepted[k] = take(t, i, "a", all...)[0] })
	}
	sending.Wait()
	if err := i.Close(); err != nil {
		t.Fatal(err)
	}
	sum, lines := 0, 0
	for _, n := range accepted {
		sum += n
	}
	for _, err := range store.DailyLines(t.Context(), path) {
		if err != nil {
			t.Fatal(err)
		}
		lines++
	}
	if sum != len(all) || lines != len(all) {
		t.Errorf("%d of %d events were accepted, and %d are on disk", sum, len(all), lines)
	}
}

// An event that a full disk did not take is no duplicate before it is there, whatever else is sent with it.
func TestIntakeOnAFullDisk(t *testing.T) {
	var d faultdisk.Disk
	path := filepath.Join(t.TempDir(), "intake.jsonl")
	c := &clock{now: began}
	i, err := consent.OpenIntake(t.Context(), consent.IntakeOptions{Path: path, Disk: &d, Log: slog.New(slog.DiscardHandler), Now: c.Now})
	if err != nil {
		t.Fatal(err)
	}
	first, second := event(t), event(t)
	d.Fail(func(o faultdisk.Op, bytes int) (int, error) { // a write of nothing succeeds
		if o.Kind == faultdisk.Write && bytes > 0 {
			return 0, syscall.ENOSPC
		}
		return bytes, nil
	})
	if _, err := i.Take(t.Context(), "a", []json.RawMessage{first}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("the first time: %v", err)
	}
	if taken, err := i.Take(t.Context(), "a", []json.RawMessage{first}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("the second time: %+v, %v", taken, err)
	}
	var writes atomic.Int32
	d.Fail(func(o faultdisk.Op, bytes int) (int, error) { // another event fits, once
		if o.Kind == faultdisk.Write && writes.Add(1) > 1 {
			return 0, syscall.ENOSPC
		}
		return bytes, nil
	})
	if taken, err := i.Take(t.Context(), "a", []json.RawMessage{first, second}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("with another event: %+v, %v", taken, err)
	}
	d.Fail(nil)
	if err := i.Close(); err != nil {
		t.Fatal(err)
	}
	i = openIntake(t, path, c)
	if got := take(t, i, "a", first, second); got != [3]int{0, 2, 0} {
		t.Errorf("after a restart with space the outcomes are %v, want 2 duplicates", got)
	}
	if err := i.Close(); err != nil {
		t.Fatal(err)
	}
}

// Events are deleted after 90 days, and an event that is forgotten is too old to be taken again.
func TestIntakeForgets(t *testing.T) {
	path, c := filepath.Join(t.TempDir(), "intake.jsonl"), &clock{now: began}
	i := openIntake(t, path, c)
	today := event(t)
	tomorrow := json.RawMessage(strings.NewReplacer("2026-11-20", "2026-11-21").Replace(string(event(t)))) // its clock is fast
	take(t, i, "a", today, tomorrow)
	if err := i.Close(); err != nil {
		t.Fatal(err)
	}
	before := 0
	for _, day := range []int{1, 2, 88, 89, 90, 91, 92, 93} {
		c.add(time.Duration(day-before) * 24 * time.Hour)
		before = day
		i = openIntake(t, path, c)
		if got := take(t, i, "a", today, tomorrow); got[0] > 0 {
			t.Errorf("after %d days %d events are accepted again", day, got[0])
		}
		if err := i.Close(); err != nil {
			t.Fatal(err)
		}
		kept := 0
		for line, err := range store.DailyLines(t.Context(), path) {
			if err != nil || !strings.Contains(string(line.Text), `"event_id"`) {
				t.Fatal(err)
			}
			kept++
		}
		if want := map[bool]int{true: 2, false: 0}[day <= consent.KeptDays]; kept != want {
			t.Errorf("after %d days %d events are kept, want %d", day, kept, want)
		}
	}
}

// Events are deleted in time also where no newer ones come.
func TestIntakeForgetsWhenIdle(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		dir := t.TempDir()
		i, err := consent.OpenIntake(t.Context(), consent.IntakeOptions{Path: filepath.Join(dir, "intake.jsonl"), Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		today := time.Now().UTC().Format(time.DateOnly)
		take(t, i, "a", json.RawMessage(strings.ReplaceAll(string(event(t)), began.Format(time.DateOnly), today)))
		for _, step := range []struct{ days, want int }{{consent.KeptDays, 1}, {2, 0}} {
			time.Sleep(time.Duration(step.days) * 24 * time.Hour)
			synctest.Wait()
			files, err := filepath.Glob(filepath.Join(dir, "intake-"+today+".jsonl"))
			if err != nil || len(files) != step.want {
				t.Errorf("%d days later there are %q, want %d files: %v", step.days, files, step.want, err)
			}
		}
		if err := i.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// An organisation cannot fill the memory with names.
func TestIntakeBoundsModels(t *testing.T) {
	i := openIntake(t, filepath.Join(t.TempDir(), "intake.jsonl"), &clock{now: began})
	defer func() { _ = i.Close() }()
	accepted := 0
	for n := range 600 {
		text := strings.Replace(valid(t), `"model":"other"`, fmt.Sprintf(`"model":"m%d"`, n), 1)
		accepted += take(t, i, "a", json.RawMessage(text))[0]
	}
	if accepted != 498 { // two more names are in all of them
		t.Errorf("%d events with other names were accepted", accepted)
	}
	if got := take(t, i, "b", event(t)); got[0] != 1 {
		t.Errorf("another organisation is not heard: %v", got)
	}
}

// Taking events in takes time in proportion to their texts.
func TestIntakeIsLinear(t *testing.T) {
	i := openIntake(t, filepath.Join(t.TempDir(), "intake.jsonl"), &clock{now: began})
	defer func() { _ = i.Close() }()
	growth.Linear(t, func(n int) func() {
		text := strings.Replace(valid(t), `"flags":[]`, `"flags":[`+strings.Repeat(`"LENGTH_ASSOCIATION",`, 400)+`""]`, 1)
		texts := make([]json.RawMessage, n/len(text)+1)
		for k := range texts {
			texts[k] = json.RawMessage(text)
		}
		return func() {
			if got := take(t, i, "a", texts...); got[2] != len(texts) {
				t.Errorf("%v of %d hostile events", got, len(texts))
			}
		}
	})
}
