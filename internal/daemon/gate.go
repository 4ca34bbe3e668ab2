package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/disk"
	"github.com/councild/councild/internal/gate"
	"github.com/councild/councild/internal/store"
)

// tasks returns the tasks that this version of councild can carry out, by their names.
func tasks() map[string]council.Task {
	return map[string]council.Task{gate.TaskName: gate.Gate{}}
}

// keepVotesTimeout is how long a session waits until its votes are stored.
const keepVotesTimeout = 10 * time.Second

// gateSchema is the version of gateLine.
const gateSchema = "gate-1"

// gateLine is a line of gate.jsonl: what the makers said about one finding of the gate. It has no text of a model or of
// the change.
type gateLine struct {
	Schema        string        `json:"schema_version"`
	SessionID     string        `json:"session_id"`
	Timestamp     time.Time     `json:"timestamp"`
	CouncilConfig string        `json:"council_config_version"`
	Verdict       gate.Verdict  `json:"verdict"`     // of the whole change
	Fingerprint   string        `json:"fingerprint"` // a hash of the file and the quote
	Severity      gate.Severity `json:"severity"`
	Confirmed     bool          `json:"confirmed"`
	Blocks        bool          `json:"blocks"`
	Ignored       bool          `json:"ignored"` // people have accepted it
	Votes         []gateVote    `json:"votes"`
}

// gateVote is what one seat said about a finding.
type gateVote struct {
	Seat     string        `json:"seat"`
	Maker    string        `json:"maker"`
	Vote     string        `json:"vote"` // "found", or a gate.Stance
	Severity gate.Severity `json:"severity"`
}

// gateLines returns the lines about a session in which a change was reviewed.
func gateLines(plan council.Plan, session *council.Session) (lines [][]byte, err error) {
	report, err := gate.ReportOf(session)
	if err != nil {
		return nil, err
	}
	makers := map[string]string{}
	for _, m := range report.Members {
		makers[m.ID] = m.Maker
	}
	for _, f := range report.Findings {
		line := gateLine{
			Schema: gateSchema, SessionID: plan.SessionID, Timestamp: plan.Created, CouncilConfig: plan.Versions.CouncilConfig,
			Verdict: report.Verdict, Fingerprint: f.Fingerprint, Severity: f.Severity, Confirmed: f.Confirmed, Blocks: f.Blocks,
			Ignored: f.Ignored != "", Votes: []gateVote{},
		}
		for _, w := range f.Wordings {
			line.Votes = append(line.Votes, gateVote{Seat: w.Seat, Maker: makers[w.Seat], Vote: "found", Severity: w.Severity})
		}
		for _, v := range f.Votes {
			line.Votes = append(line.Votes, gateVote{Seat: v.Seat, Maker: makers[v.Seat], Vote: string(v.Vote), Severity: v.Severity})
		}
		text, err := json.Marshal(line)
		if err != nil {
			return nil, fmt.Errorf("encoding the votes on a finding: %w", err)
		}
		lines = append(lines, append(text, '\n'))
	}
	return lines, nil
}

// gateVotes stores the votes of the gate. It opens its file for the first session that has findings.
type gateVotes struct {
	options store.Options
	log     *slog.Logger

	mu    sync.Mutex // guards store
	store *store.Store
}

// newGateVotes returns nil if the settings say that no votes are kept.
func newGateVotes(cfg config.Config, on disk.Disk, log *slog.Logger) *gateVotes {
	path := cfg.GateFile()
	if path == "" {
		return nil
	}
	return &gateVotes{log: log, options: store.Options{
		Path: path, Fsync: cfg.BiasFsync, Interval: cfg.BiasFsyncInterval, Disk: on, Log: log.With("store", "gate"),
	}}
}

// keep stores the votes of a session. An error does not fail the session, and is only logged. If the daemon dies before
// the end of the session is stored, the next daemon stores the same votes again.
func (g *gateVotes) keep(ctx context.Context, plan council.Plan, session *council.Session) {
	if g == nil || session.Task == nil || session.Task.Name != gate.TaskName {
		return
	}
	lines, err := gateLines(plan, session)
	if err == nil && len(lines) > 0 {
		err = g.write(ctx, lines)
	}
	if err != nil {
		g.log.WarnContext(ctx, "the votes of a review were not written to gate.jsonl", "session_id", plan.SessionID, "error", err)
	}
}

// write stores lines. When it returns nil, they are stored as safely as LLM_COUNCIL_BIAS_FSYNC asks for.
func (g *gateVotes) write(ctx context.Context, lines [][]byte) error {
	ctx, cancel := context.WithTimeout(ctx, keepVotesTimeout)
	defer cancel()
	s, err := g.open() //nolint:contextcheck // a store lives until it is closed
	if err != nil {
		return err
	}
	wait, err := s.AppendLines(lines...)
	if err != nil {
		return err
	}
	return wait(ctx)
}

func (g *gateVotes) open() (*store.Store, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.store != nil {
		return g.store, nil
	}
	s, _, err := store.Open(g.options)
	if err != nil {
		return nil, err
	}
	g.store = s
	return s, nil
}

// close closes the file, if it is open.
func (g *gateVotes) close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.store == nil {
		return nil
	}
	return g.store.Close()
}
