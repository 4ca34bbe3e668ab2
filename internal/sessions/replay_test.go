package sessions_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/sessions"
	"github.com/councild/councild/internal/testkit/race"
)

func repeating(key string) func(*sessions.Start) { return func(s *sessions.Start) { s.Repeat = key } }

func paidFailure() *council.Error { return &council.Error{Code: council.CodeNoQuorum, Paid: 2} }

// stands returns the id of the session that stands in for a request, "" for none.
func stands(t *testing.T, st *sessions.Store, key string) string {
	t.Helper()
	s, err := st.Repeated(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if s == nil {
		return ""
	}
	return s.ID
}

// A failure is replayed for 2 minutes, and for 2 minutes more after each replay, up to 10 minutes.
func TestReplayEnds(t *testing.T) {
	for _, tt := range []struct {
		asked []time.Duration // after the failure
		want  []bool
	}{
		{[]time.Duration{119 * time.Second}, []bool{true}},
		{[]time.Duration{120 * time.Second}, []bool{false}},
		{[]time.Duration{119 * time.Second, 238 * time.Second, 358 * time.Second}, []bool{true, true, false}},
		{
			[]time.Duration{110 * time.Second, 220 * time.Second, 330 * time.Second, 440 * time.Second, 550 * time.Second, 599 * time.Second, 600 * time.Second},
			[]bool{true, true, true, true, true, true, false},
		},
	} {
		race.Bubble(t, func(t *testing.T) {
			st := sessions.New(sessions.Options{}) // also where no session is kept
			defer st.Close(t.Context())
			s := add(t, st, "one", repeating("k"))
			if err := s.Finish(nil, paidFailure(), council.Problem{}); err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			for i, after := range tt.asked {
				time.Sleep(after - time.Since(begun))
				if id := stands(t, st, "k"); (id == "one") != tt.want[i] {
					t.Errorf("%v after the failure %q stands in", after, id)
				}
			}
		})
	}
}

// What stands in for a request, by how its session ended.
func TestWhatIsReplayed(t *testing.T) {
	free := func(code council.Code) *council.Error { return &council.Error{Code: code} }
	for _, tt := range []struct {
		name    string
		left    bool // the client, before the end
		failure *council.Error
		want    bool
	}{
		{"an answer", false, nil, false},
		{"an answer that the client has not seen", true, nil, true},
		{"a failure that was paid", false, paidFailure(), true},
		{"a failure that was free", false, free(council.CodeNoQuorum), false},
		{"a failure that was free, of a client that left", true, free(council.CodeNoQuorum), false},
		{"cancelled by DELETE, and free", false, free(council.CodeCancelled), true},
		{"cancelled, because the client left before anything was paid", true, free(council.CodeCancelled), false},
		{"cancelled, because the client left", true, &council.Error{Code: council.CodeCancelled, Paid: 1}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			st := sessions.New(generous())
			defer st.Close(t.Context())
			s := add(t, st, "one", repeating("k"))
			if tt.left {
				s.Leave(context.Canceled)
			}
			session := &council.Session{ID: "one", Answer: "yes", Status: council.StatusComplete}
			if tt.failure != nil {
				session.Status = council.StatusFailed
			}
			if err := s.Finish(session, tt.failure, council.Problem{}); err != nil {
				t.Fatal(err)
			}
			s.Leave(nil) // after the end it says nothing
			for range 2 {
				again, err := st.Repeated(t.Context(), "k")
				if err != nil || (again != nil) != tt.want {
					t.Fatalf("%v stands in: %v", again, err)
				}
				if again == nil {
					continue
				}
				<-again.Done()
				if result, failure := again.Result(); failure != tt.failure || failure == nil && result.Answer != "yes" {
					t.Errorf("%+v, %v stands in", result, failure)
				}
			}
			for _, key := range []string{"", "other"} {
				if id := stands(t, st, key); id != "" {
					t.Errorf("%q stands in for another request", id)
				}
			}
		})
	}
}

// A request that comes before the session has ended waits for its end, and no longer than its client does.
func TestRepeatWaitsForTheEnd(t *testing.T) {
	st := sessions.New(generous())
	defer st.Close(t.Context())
	s := add(t, st, "one", repeating("k"))
	if id := stands(t, st, "k"); id != "" { // its client waits: this is another request
		t.Errorf("%q stands in", id)
	}
	s.Leave(context.Canceled)
	ctx, leave := context.WithCancel(t.Context())
	leave()
	if again, err := st.Repeated(ctx, "k"); again != nil || err == nil {
		t.Errorf("%v, %v", again, err)
	}
	came := make(chan string)
	go func() { came <- stands(t, st, "k") }()
	if err := s.Finish(nil, paidFailure(), council.Problem{}); err != nil {
		t.Fatal(err)
	}
	if id := <-came; id != "one" {
		t.Errorf("%q stands in", id)
	}
}

// The oldest failures go first, and no more than 1,024 are remembered.
func TestReplaysAreBounded(t *testing.T) {
	st := sessions.New(sessions.Options{})
	defer st.Close(t.Context())
	const n = 1100
	for i := range n {
		s := add(t, st, strconv.Itoa(i), repeating(strconv.Itoa(i)))
		if err := s.Finish(nil, paidFailure(), council.Problem{}); err != nil {
			t.Fatal(err)
		}
	}
	kept := 0
	for i := range n {
		if id := stands(t, st, strconv.Itoa(i)); id != "" {
			if kept++; i < n-1024 {
				t.Fatalf("%d is remembered", i)
			}
		}
	}
	if kept != 1024 {
		t.Errorf("%d are remembered", kept)
	}
}
