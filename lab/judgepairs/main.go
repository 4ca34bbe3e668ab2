// Command judgepairs judges pairs whose better answer is known. Its argument is a file of bias records, which may be
// compressed with gzip. Each block_id is a pair, whose answers have the model_id good and bad. The recorded reviewers
// judged each pair in both orders, and a simulated provider repeats what they said.
//
// It prints how often the majority of the judges prefers the good answer, by the verdicts of councild and by a count of
// the same records. The exit code is 1 if the two differ in any pair.
package main

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/llm"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/ranking"
	"github.com/councild/councild/internal/simllm"
)

// The ids of the two answers of a pair.
const (
	good = "good"
	bad  = "bad"
)

// reading names one order in which a judge read a pair.
type reading struct {
	judge, pair string
	first       string // the answer that was shown first
}

func main() {
	if len(os.Args) != 2 { //nolint:mnd // the program and the file
		fmt.Fprintln(os.Stderr, "usage: judgepairs FILE")
		os.Exit(2) //nolint:mnd // the command line is wrong
	}
	if err := run(context.Background(), os.Args[1], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run judges the pairs of a file, and prints what was found.
func run(ctx context.Context, file string, out io.Writer) error {
	preferred, err := read(file)
	if err != nil {
		return err
	}
	judges, pairs := map[string]bool{}, map[string]bool{}
	for r := range preferred {
		judges[r.judge] = true
		pairs[r.pair] = true
	}
	p, stop, err := repeating(ctx, slices.Sorted(maps.Keys(judges)), preferred)
	if err != nil {
		return err
	}
	defer stop()
	var judged, counted tally
	differ := 0
	for pair := range maps.Keys(pairs) {
		verdict, err := judge(ctx, p, pair)
		if err != nil {
			return fmt.Errorf("pair %s: %w", pair, err)
		}
		want := majority(slices.Collect(maps.Keys(judges)), pair, preferred)
		judged.add(verdict)
		counted.add(want)
		if verdict != want {
			differ++
		}
	}
	_, _ = fmt.Fprintf(out, "%d pairs, %d judges\nby councild:      %s\nby the records:   %s\n", len(pairs), len(judges), judged, counted)
	if differ > 0 {
		return fmt.Errorf("%d pairs have another majority", differ)
	}
	return nil
}

// read returns the answer that each judge preferred in each reading.
func read(file string) (map[reading]string, error) {
	f, err := os.Open(file) //nolint:gosec // the caller names the file
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var in io.Reader = f
	if strings.HasSuffix(file, ".gz") {
		if in, err = gzip.NewReader(f); err != nil {
			return nil, err
		}
	}
	// The records of one session and reviewer say which answer was first and which was preferred.
	type ballot struct{ judge, session string }
	readings := map[ballot]reading{}
	winners := map[ballot]string{}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var r council.BiasMetricRecord
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, err
		}
		if r.BlockID == nil || r.Position == nil || r.ScoreValue == nil || r.ModelID != good && r.ModelID != bad {
			return nil, fmt.Errorf("a record of session %s is not one of a pair", r.SessionID)
		}
		b := ballot{r.ReviewerID, r.SessionID}
		if *r.Position == 0 {
			readings[b] = reading{r.ReviewerID, *r.BlockID, r.ModelID}
		}
		if *r.ScoreValue > 0 {
			winners[b] = r.ModelID
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	preferred := map[reading]string{}
	for b, r := range readings {
		preferred[r] = winners[b]
	}
	return preferred, nil
}

// repeating returns a pipeline whose judges repeat what was recorded, and a function that ends their provider. Without a
// record, a judge returns no ballot.
func repeating(ctx context.Context, judges []string, preferred map[reading]string) (*pipeline.Pipeline, func(), error) {
	models := make([]simllm.Model, 0, len(judges))
	for _, name := range judges {
		models = append(models, simllm.Model{Name: name, Reply: func(task simllm.Task) (string, bool) {
			label := map[string]string{}
			for _, a := range task.Answers {
				answer, _, _ := strings.Cut(a.Text, " ")
				label[answer] = a.Label
			}
			first, pair, _ := strings.Cut(task.Answers[0].Text, " ")
			winner := preferred[reading{name, pair, first}]
			if winner == "" {
				return "I do not know.", true
			}
			loser := good
			if winner == good {
				loser = bad
			}
			return "FINAL RANKING: " + label[winner] + " > " + label[loser], true
		}})
	}
	sim, err := simllm.Start(ctx, simllm.Options{Models: models})
	if err != nil {
		return nil, nil, err
	}
	client, err := llm.New(llm.Options{
		Providers: []llm.Provider{{BaseURL: sim.URL()}}, AttemptTimeout: time.Minute, DialTimeout: time.Second,
		MaxCallsPerProvider: len(judges), MaxReplyBytes: 1 << 20,
	})
	if err != nil {
		sim.Close()
		return nil, nil, err
	}
	p, err := pipeline.New(pipeline.Options{
		Completer: client, Log: slog.New(slog.DiscardHandler), MaxQueryBytes: 1 << 10,
		Lineup: pipeline.Lineup{Models: judges, MaxModels: len(judges)},
		Limits: council.Limits{Timeout: time.Minute}, Draws: pipeline.Draws{Order: council.OrderBalanced},
	})
	return p, func() {
		client.Close()
		sim.Close()
	}, err
}

// judge returns the answer of a pair that the judges prefer, or "".
func judge(ctx context.Context, p *pipeline.Pipeline, pair string) (string, error) {
	plan, err := p.PrepareJudge(council.JudgeRequest{
		Question: "Which is better?", Exclude: council.ExcludeNone,
		Answers: []council.JudgeAnswer{{ID: good, Text: good + " " + pair}, {ID: bad, Text: bad + " " + pair}},
	})
	if err != nil {
		return "", err
	}
	session, err := p.Run(ctx, plan, nil, nil)
	if err != nil {
		return "", err
	}
	verdict := ranking.Judged(session).Verdict
	if verdict == nil {
		return "", errors.New("there is no verdict")
	}
	if verdict.Winner == nil {
		return "", nil
	}
	return *verdict.Winner, nil
}

// majority counts the judges that preferred the same answer of a pair in both orders. It returns the answer with more
// votes, or "".
func majority(judges []string, pair string, preferred map[reading]string) string {
	lead := 0
	for _, name := range judges {
		one, other := preferred[reading{name, pair, good}], preferred[reading{name, pair, bad}]
		switch {
		case one != other:
		case one == good:
			lead++
		case one == bad:
			lead--
		}
	}
	switch {
	case lead > 0:
		return good
	case lead < 0:
		return bad
	default:
		return ""
	}
}

// tally counts pairs by what the majority prefers.
type tally struct{ right, wrong, undecided int }

func (t *tally) add(winner string) {
	switch winner {
	case good:
		t.right++
	case bad:
		t.wrong++
	default:
		t.undecided++
	}
}

// String returns the counts, and the share of right verdicts among all verdicts.
func (t tally) String() string {
	const percent = 100
	return fmt.Sprintf("%d right, %d wrong, %d undecided: %.1f %% of the verdicts are right",
		t.right, t.wrong, t.undecided, percent*float64(t.right)/float64(max(1, t.right+t.wrong)))
}
