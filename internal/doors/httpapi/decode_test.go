package httpapi_test

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/doors/httpapi"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/runlog"
	"github.com/councild/councild/internal/testkit/doortest"
)

// prepared is a Council that keeps the plan and runs nothing.
type prepared struct {
	*pipeline.Pipeline
	plan *council.Plan
}

func (p *prepared) Run(_ context.Context, plan council.Plan, _ council.Observer, _ *runlog.Log) (*council.Session, error) {
	p.plan = &plan
	return &council.Session{}, nil
}

// Every body is either refused with a reason or becomes a plan that can be run.
func FuzzBody(f *testing.F) {
	for _, tt := range badInput {
		if tt.method == "POST" && len(tt.body) < 1<<10 {
			f.Add(tt.body)
		}
	}
	f.Add(`{"query":"x","models":["amber","birch"],"seed":1,"order":"shared","timeout_seconds":1,` +
		`"max_cost_usd":0.5,"max_total_tokens":9,"on_partial":"refuse"}`)
	f.Add(`{"messages":[{"role":"system","content":"x"},{"role":"user","content":"y"}],` +
		`"chairman":"cedar","language":"en","category":"math"}`)
	f.Add(strings.Repeat(`{"query":`, 20))
	p, err := pipeline.New(pipeline.Options{
		Lineup: pipeline.Lineup{Models: []string{"amber", "birch", "cedar"}, MaxModels: 4}, MaxQueryBytes: 1 << 10,
		Limits: council.Limits{Timeout: time.Minute}, Draws: pipeline.Draws{Order: council.OrderBalanced},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body string) {
		c := &prepared{Pipeline: p}
		api, err := httpapi.New(httpapi.Options{
			Council: c, Daemon: &doortest.Daemon{}, Spend: &doortest.Daemon{}, Comparer: &doortest.Daemon{}, MaxSessions: 1, MaxBodyBytes: 1 << 12,
			BodyTimeout: time.Second,
			Log:         slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		w := &timed{ResponseRecorder: httptest.NewRecorder()}
		api.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "POST", "http://localhost/v1/council", strings.NewReader(body)))
		switch w.Code {
		case 400, 403, 413, 422:
			if c.plan != nil {
				t.Errorf("%d, and it ran", w.Code)
			}
		case 200, 202:
			if err := api.Idle(t.Context()); err != nil { // it may be in the background
				t.Fatal(err)
			}
			if n := len(c.plan.Members()); n < 2 || n > 4 || len(c.plan.Conversation) == 0 || strings.TrimSpace(c.plan.Question()) == "" ||
				c.plan.Seed < 0 || c.plan.Seed > council.MaxSeed || c.plan.Timeout < 0 || c.plan.Timeout > time.Minute {
				t.Errorf("%q became %+v", body, c.plan)
			}
		default:
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}
