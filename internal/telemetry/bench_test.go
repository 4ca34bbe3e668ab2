package telemetry

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	"github.com/councild/councild/internal/council"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// counting is an exporter that counts spans and drops them.
type counting struct{ spans int }

func (c *counting) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	c.spans += len(spans)
	return nil
}

func (c *counting) Shutdown(context.Context) error { return nil }

// once is a provider that sends one request for each call.
type once struct{ council.Completer }

func (once) Complete(ctx context.Context, call council.Call) (council.Completion, error) {
	receipt, _ := call.Begin(ctx, council.Attempt{Number: 1, Bytes: 1000})
	receipt.Finish(ctx, council.Consumed{Status: 200, ResponseID: "reply-1"})
	return council.Completion{Text: "text", FinishReason: "stop", Spent: council.Spent{
		Attempts: 1, ModelVersion: new("m-1"),
		Usage: council.Usage{InputTokens: new(int64(400)), OutputTokens: new(int64(50)), CostUSD: new(0.01)},
	}}, nil
}

// BenchmarkSession traces a session of four members and nine calls.
func BenchmarkSession(b *testing.B) {
	exported := &counting{}
	tracing := newTracing(sdktrace.NewTracerProvider(sdktrace.WithBatcher(exported, sdktrace.WithBlocking())))
	completer := tracing.Completer(once{}, nil)
	labels := map[council.Label]council.Seat{}
	scores := map[council.Label]float64{}
	ballot := council.Ballot{Scores: scores}
	for i := range 3 {
		label := council.Label(fmt.Sprintf("Response %c", 'A'+i))
		labels[label] = council.Seat{Model: strconv.Itoa(i), DisplayIndex: i}
		scores[label] = float64(9 - i)
		ballot.Ranking = append(ballot.Ranking, label)
	}
	plan := council.Plan{SessionID: "a", User: "u", Origin: council.Origin{RequestID: "r"}}
	b.ReportAllocs()
	for b.Loop() {
		ctx, s := tracing.Session(b.Context(), plan, false, nil)
		for stage, calls := range map[council.Stage]int{council.Stage1: 4, council.Stage2: 4, council.Stage3: 1} {
			for i := range calls {
				_, _ = completer.Complete(ctx, council.Call{Stage: stage, Seat: strconv.Itoa(i), Model: "m"})
				if stage == council.Stage2 {
					s.Observe(council.Event{Type: council.EventBallot, Data: council.Review{
						Model: strconv.Itoa(i), LabelToModel: labels, ParsedRanking: &ballot,
					}})
				}
			}
		}
		s.Observe(council.Event{Type: council.EventDone, Data: &council.Session{Status: council.StatusComplete}})
		s.End()
	}
	if err := tracing.Close(context.WithoutCancel(b.Context())); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(exported.spans)/float64(b.N), "spans/op")
}
