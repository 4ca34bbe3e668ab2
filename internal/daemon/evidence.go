package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/disk"
	"github.com/councild/councild/internal/render"
	"github.com/councild/councild/internal/store"
	"github.com/councild/councild/internal/worth"
)

// evidence stores what reviewers and people say about whole sessions.
type evidence struct {
	store *store.Store
	key   string // keys the hashes of persons; "" without a secret
}

// openEvidence opens the evidence file. It returns nil if no evidence is kept. It also returns nil, with a warning in
// the log, if the default file beside the records cannot be written and no setting needs the file.
func openEvidence(ctx context.Context, cfg config.Config, on disk.Disk, log *slog.Logger) (*evidence, error) {
	path, named := cfg.EvidenceFile()
	if path == "" {
		return nil, nil
	}
	s, _, err := store.Open(store.Options{ //nolint:contextcheck // a store lives until it is closed
		Path: path, Fsync: cfg.BiasFsync, Interval: cfg.BiasFsyncInterval, Disk: on, Log: log.With("store", "evidence"),
	})
	switch {
	case err == nil:
		return &evidence{s, cfg.HashSecret.Reveal()}, nil
	case named || cfg.ShadowRate > 0 || cfg.LabelRate > 0:
		return nil, fmt.Errorf("LLM_COUNCIL_DATA_DIR: %w", err)
	default:
		log.WarnContext(ctx, "feedback is not stored: name a directory in LLM_COUNCIL_DATA_DIR, or write "+
			"off", "error", err)
		return nil, nil
	}
}

// keep stores a record. When it returns nil, the record is stored as safely as LLM_COUNCIL_BIAS_FSYNC asks for.
func (e *evidence) keep(ctx context.Context, record store.Evidence) error {
	line, err := store.EncodeEvidence(record)
	if err != nil {
		return err
	}
	wait, err := e.store.AppendLines(line)
	if err != nil {
		return err
	}
	return wait(ctx)
}

// Evidence weighs what reviewers and people say about the sessions that a query asks for. It reads the evidence files
// at the paths as one file, and looks only at the newest council and prompt. It ignores the window of the settings,
// because comparisons by reviewers and labels by people are few. It returns nil if there is no evidence, or if the
// query is about single members.
func Evidence(ctx context.Context, paths []string, q bias.Query) (*render.CouncilEvidence, error) {
	if q.Reviewer != "" || q.Model != "" || q.ModelVersion != "" || q.Source != "" {
		return nil, nil
	}
	g, err := gather(ctx, paths, q)
	if err != nil {
		return nil, err
	}
	return g.weigh(), nil
}

// gather reads the records that a query asks for from the evidence files at the paths.
func gather(ctx context.Context, paths []string, q bias.Query) (*gathering, error) {
	g := &gathering{q: q, skipped: map[store.Reason]*bias.Skipped{}}
	if q.Days != nil && *q.Days > 0 {
		if from := time.Now().UTC().AddDate(0, 0, -*q.Days); from.After(g.q.Since) {
			g.q.Since = from
		}
	}
	for _, path := range paths {
		for e, err := range store.ReadEvidence(ctx, path) {
			if bad, ok := errors.AsType[*store.LineError](err); ok {
				g.skip(bad)
			} else if err != nil {
				return nil, fmt.Errorf("LLM_COUNCIL_DATA_DIR: %w", err)
			} else {
				g.add(e)
			}
		}
	}
	g.shed(maxEvidence)
	return g, nil
}

// maxEvidence is the most labels, and the most shadow sessions, that a report holds. The report keeps the newest.
const maxEvidence = 10_000

// gathering holds the records that were read so far.
type gathering struct {
	q       bias.Query
	shadows []council.ShadowRecord
	labels  []council.LabelRecord
	old     int // how many records were left out because there are too many newer ones
	skipped map[store.Reason]*bias.Skipped
}

// shed drops all but the last label that each person gave to a session. Of the rest, it keeps the newest labels and the
// newest shadow sessions. The argument most is the largest number of labels, and of shadow sessions, that it keeps.
func (g *gathering) shed(most int) {
	last := map[[2]string]int{}
	for i, l := range g.labels {
		key := [2]string{l.SessionID, l.By}
		if j, ok := last[key]; !ok || !l.Labelled.Before(g.labels[j].Labelled) {
			last[key] = i
		}
	}
	labels := make([]council.LabelRecord, 0, len(last))
	for _, i := range slices.Sorted(maps.Values(last)) {
		labels = append(labels, g.labels[i])
	}
	slices.SortStableFunc(labels, func(a, b council.LabelRecord) int { return a.Labelled.Compare(b.Labelled) })
	slices.SortStableFunc(g.shadows, func(a, b council.ShadowRecord) int { return a.Timestamp.Compare(b.Timestamp) })
	cutLabels := max(len(labels)-most, 0)
	cutShadows := max(len(g.shadows)-most, 0)
	g.labels = slices.Clone(labels[cutLabels:])
	g.shadows = slices.Clone(g.shadows[cutShadows:])
	g.old += cutLabels + cutShadows
}

func (g *gathering) skip(bad *store.LineError) {
	if g.skipped[bad.Reason] == nil {
		g.skipped[bad.Reason] = &bias.Skipped{Reason: string(bad.Reason), FirstFile: &bad.File, FirstLine: &bad.Line}
	}
	g.skipped[bad.Reason].Count++
}

// add takes a record if the query asks for it.
func (g *gathering) add(e store.Evidence) {
	wanted := func(at time.Time, config string, m council.QueryMetadata) bool {
		is := func(asked string, value *string) bool { return asked == "" || value != nil && *value == asked }
		return !at.Before(g.q.Since) && (g.q.Until.IsZero() || at.Before(g.q.Until)) &&
			(g.q.ConfigVersion == "" || config == g.q.ConfigVersion) &&
			is(g.q.Category, m.Category) && is(g.q.Language, m.Language)
	}
	switch {
	case e.Shadow != nil && wanted(e.Shadow.Timestamp, e.Shadow.CouncilConfig, e.Shadow.QueryMetadata):
		g.shadows = append(g.shadows, *e.Shadow)
	case e.Label != nil && wanted(e.Label.Timestamp, e.Label.CouncilConfig, e.Label.QueryMetadata):
		g.labels = append(g.labels, *e.Label)
	}
	if max(len(g.labels), len(g.shadows)) > 2*maxEvidence { // shed runs seldom, so that each record costs little time
		g.shed(maxEvidence)
	}
}

// weigh returns what the records of the newest council and prompt say.
func (g *gathering) weigh() *render.CouncilEvidence {
	g.newest()
	all := len(g.shadows) + len(g.labels)
	if all == 0 && len(g.skipped) == 0 {
		return nil
	}
	config := g.ofOne()
	found := &render.CouncilEvidence{
		CouncilConfig: config, LeftOut: g.old + all - len(g.shadows) - len(g.labels), Skipped: []bias.Skipped{},
		Evidence: worth.Weigh(g.shadows, g.labels),
	}
	for _, reason := range slices.Sorted(maps.Keys(g.skipped)) {
		found.Skipped = append(found.Skipped, *g.skipped[reason])
	}
	return found
}

// ofOne drops all records except those of the newest council and prompt. It returns the version of that council.
func (g *gathering) ofOne() (config string) {
	var at time.Time
	prompt := ""
	for _, s := range g.shadows {
		if !s.Timestamp.Before(at) {
			at = s.Timestamp
			config = s.CouncilConfig
			prompt = s.Prompt
		}
	}
	for _, l := range g.labels {
		if l.Timestamp.After(at) {
			at = l.Timestamp
			config = l.CouncilConfig
		}
	}
	g.shadows = slices.DeleteFunc(g.shadows, func(s council.ShadowRecord) bool {
		return s.CouncilConfig != config || s.Prompt != prompt
	})
	g.labels = slices.DeleteFunc(g.labels, func(l council.LabelRecord) bool { return l.CouncilConfig != config })
	return config
}

// newest applies the query's limit on the number of sessions, if it has one. It drops all but the newest sessions.
func (g *gathering) newest() {
	if g.q.Sessions == nil || *g.q.Sessions <= 0 {
		return
	}
	began := map[string]time.Time{}
	for _, s := range g.shadows {
		began[s.SessionID] = s.Timestamp
	}
	for _, l := range g.labels {
		began[l.SessionID] = l.Timestamp
	}
	ids := slices.SortedFunc(maps.Keys(began), func(a, b string) int {
		return cmp.Or(began[b].Compare(began[a]), cmp.Compare(b, a))
	})
	for _, id := range ids[min(*g.q.Sessions, len(ids)):] {
		delete(began, id)
	}
	isOld := func(id string) bool { _, young := began[id]; return !young }
	g.shadows = slices.DeleteFunc(g.shadows, func(s council.ShadowRecord) bool { return isOld(s.SessionID) })
	g.labels = slices.DeleteFunc(g.labels, func(l council.LabelRecord) bool { return isOld(l.SessionID) })
}

// Evidence implements httpapi.Daemon.
func (d *Daemon) Evidence(ctx context.Context, q bias.Query) (*render.CouncilEvidence, error) {
	path, _ := d.cfg.EvidenceFile()
	if path == "" {
		return nil, nil
	}
	return Evidence(ctx, []string{path}, q)
}

// Keep implements httpapi.Labels.
func (e *evidence) Keep(ctx context.Context, record council.LabelRecord) error {
	return e.keep(ctx, store.Evidence{Label: &record})
}

// Key implements httpapi.Labels.
func (e *evidence) Key() string { return e.key }
