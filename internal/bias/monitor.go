package bias

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/councild/councild/internal/stat"
)

// MonitorSchema is the schema version of a [Monitor].
const MonitorSchema = "2.0.0"

// MonitorFrom is how many questions the figures of a monitor take: its e values are good as
// far as estimates are normal.
const MonitorFrom = 100

const (
	monitorLevel = 0.05 // the false discovery rate among the headlines, whenever one looks
	monitorTuned = 500  // questions for which the intervals are narrowest
)

// shadowPreference is the headline of the monitor that comes from shadow sessions.
const shadowPreference = "shadow_preference"

const noEffect = "no effect shown"

// Monitor says whether bias has begun. It may be computed each morning, or after each
// session: how often one looks does not make false alarms more likely. It takes all sessions
// of the council that the newest session had, by its council_config_version.
type Monitor struct {
	SchemaVersion string    `json:"schema_version"`
	GeneratedAt   time.Time `json:"generated_at"`
	Status        Status    `json:"status"`
	ConfigVersion string    `json:"council_config_version"` // "" where the records do not tell
	Window        Window    `json:"window"`
	// OtherCouncils is how many sessions were left out because another council held them.
	OtherCouncils int      `json:"sessions_of_other_councils"`
	Filters       []Filter `json:"filters,omitempty"`
	// SessionsNeeded is how many sessions are missing until there are figures.
	SessionsNeeded int `json:"sessions_needed"`
	// RetentionDays is the age from which records are deleted. The monitor then begins anew
	// with the oldest that are left, and so does its promise. Null: never.
	RetentionDays *int      `json:"retention_days"`
	Headline      string    `json:"headline"` // what was found, in one sentence
	Level         float64   `json:"level"`    // the share of alarms that may be false
	Skipped       []Skipped `json:"skipped"`
	Watched       []Watched `json:"headlines"` // eight, always in one order; none while data are collected
}

// Watched is a headline of a monitor.
type Watched struct {
	Name string `json:"headline"`
	Kind Kind   `json:"kind"` // favour, or level: one that ranks do not depend on, and that is no alarm
	Unit string `json:"unit"`
	// Subject is the member of the headline that the figure is taken from: of those that
	// carry an alarm the largest, else the one with the greatest e value. "": the headline
	// has no members.
	Subject       string   `json:"subject"`
	PointEstimate *float64 `json:"point_estimate"`
	// CILower and CIUpper are a 95 % interval that holds for all members at once, however
	// often one looks.
	CILower *float64 `json:"ci_lower"`
	CIUpper *float64 `json:"ci_upper"`
	// LogE is the natural logarithm of the e value that there is no bias. The e value is the mean of those of the members. If some
	// members are what all reviewers have in common, it is the mean of two means: over these members, and over the others. Null if
	// it cannot be told.
	LogE     *float64 `json:"log_e"`
	Members  int      `json:"members"`  // that e is the mean of
	Clusters int      `json:"clusters"` // sessions behind the figure, those that answered one question counted once
	Delta    *float64 `json:"delta"`    // the least effect that counts, in the unit; null: any
	// Found says that an effect was found and is large enough to count. A favour that was found raises the alarm.
	Found  bool   `json:"found"`
	Alarm  bool   `json:"alarm"`
	Reason string `json:"reason"` // for what was found, or for there being nothing
}

// Monitor computes the monitor over what was added so far, and over the preference in shadow
// sessions of the same council: from each, in the order in which they came, the share of the
// reviewers, 0 to 1, that preferred the synthesis. If the context ends before, the monitor is of no use.
func (c *Collector) Monitor(ctx context.Context, shadow []float64) Monitor {
	w := c.window()
	all := len(w.sessions)
	version := w.keepNewestCouncil()
	m := Monitor{
		SchemaVersion:  MonitorSchema,
		GeneratedAt:    c.o.Now.UTC(),
		Status:         StatusOK,
		ConfigVersion:  version,
		Filters:        w.filters,
		Window:         c.span(&w),
		OtherCouncils:  all - len(w.sessions),
		SessionsNeeded: max(0, MonitorFrom-len(w.sessions)),
		RetentionDays:  c.o.RetentionDays,
		Level:          monitorLevel,
		Skipped:        c.skips(Skipped{Reason: reasonDuplicate, Count: w.duplicates}),
		Watched:        []Watched{},
	}
	if m.SessionsNeeded > 0 {
		m.Filters = append(m.Filters, c.leftOut()...)
		m.Status = StatusCollecting
		m.Headline = fmt.Sprintf("Collecting data (%d of %d sessions)", m.Window.Sessions, MonitorFrom)
		return m
	}
	h := findings{models: newModels(&w), c: c, span: m.Window}
	h.favour = newFavours(ctx, h.models)
	seven := []Metric{h.position(), h.slopes(), h.selfPreference(), h.family(), h.harshness(), h.affinity(), h.anchoring()}
	figures := make([][]watchedFigure, len(seven))
	for i := range seven {
		figures[i] = seven[i].watch()
		m.Watched = append(m.Watched, newWatched(&seven[i], figures[i]))
	}
	m.Watched = append(m.Watched, watchShadow(shadow))
	m.decide(figures)
	m.Headline = m.summary()
	return m
}

// span returns what a report says of the window that it is computed from.
func (c *Collector) span(w *window) Window {
	span := Window{Sessions: len(w.sessions), Records: w.records, Days: c.o.WindowDays, Newest: c.o.WindowSessions}
	if n := len(w.sessions); n > 0 {
		span.Start = new(w.sessions[0].start)
		span.End = new(w.sessions[n-1].start)
	}
	return span
}

// NewestCouncil returns the council_config_version of the sessions that [Collector.Monitor] takes.
func (c *Collector) NewestCouncil() string {
	w := c.window()
	return w.keepNewestCouncil()
}

// keepNewestCouncil leaves the sessions of the council that the newest session had, and
// returns its version: that of the newest session which tells one.
func (w *window) keepNewestCouncil() (version string) {
	for _, s := range slices.Backward(w.sessions) {
		if s.config != "" {
			version = s.config
			break
		}
	}
	w.sessions = slices.DeleteFunc(w.sessions, func(s scores) bool { return s.config != version })
	w.records = 0
	w.clusters = 0
	number := map[int]int{}
	for k := range w.sessions {
		s := &w.sessions[k]
		w.records += s.records()
		if _, ok := number[s.cluster]; !ok {
			number[s.cluster] = len(number)
		}
		s.cluster = number[s.cluster]
	}
	w.clusters = len(number)
	return version
}

// watchedFigure is an estimate that a headline of the monitor rests on.
type watchedFigure struct {
	*Metric
	logE float64
}

// watch returns the estimates that a headline rests on, from enough questions: its members or,
// where it is not taken from members, its own.
func (m *Metric) watch() []watchedFigure {
	all := m.tested()
	if len(all) == 0 {
		all = []*Metric{m}
	}
	var figures []watchedFigure
	for _, figure := range all {
		if p := figure.PValue; p != nil && figure.Clusters >= MonitorFrom {
			const least = 1e-300 // beyond, the normal score of a p would be infinite
			z := stat.NormalQuantile(max(*p/2, least))
			figures = append(figures, watchedFigure{figure, mixture().LogE(float64(figure.Clusters), z)})
		}
	}
	return figures
}

// mixture gives the e values and the intervals of a monitor.
func mixture() stat.Mixture { return stat.TunedMixture(monitorLevel, monitorTuned) }

// newWatched returns a headline without a decision.
func newWatched(m *Metric, figures []watchedFigure) Watched {
	w := Watched{Name: m.Name, Kind: m.Kind, Unit: m.Unit, Members: len(figures), Delta: m.Delta, Clusters: m.Clusters}
	if len(figures) == 0 {
		w.Reason = m.tooFew(MonitorFrom, "the monitor")
		if m.Verdict != nil && *m.Verdict == VerdictNotIdentified {
			w.Reason = m.Reason
		}
		return w
	}
	var kinds []float64
	for _, inCommon := range []bool{true, false} {
		var logs []float64
		for _, figure := range figures {
			if figure.InCommon == inCommon {
				logs = append(logs, figure.logE)
			}
		}
		if len(logs) > 0 {
			kinds = append(kinds, stat.LogMean(logs))
		}
	}
	w.LogE = new(stat.LogMean(kinds))
	return w
}

// show gives the headline the figure of one of so many members.
func (w *Watched) show(m *Metric, among int) {
	w.Subject = m.SubjectName()
	w.PointEstimate = m.PointEstimate
	w.Clusters = m.Clusters
	half := *m.StandardError * mixture().Factor(float64(m.Clusters), monitorLevel/float64(among))
	w.CILower = new(*m.PointEstimate - half)
	w.CIUpper = new(*m.PointEstimate + half)
}

// watchShadow returns the preference in shadow sessions without a decision.
func watchShadow(shadow []float64) Watched {
	w := Watched{
		Name:     shadowPreference,
		Kind:     KindFavour,
		Unit:     "share for the synthesis",
		Clusters: len(shadow),
		Reason:   "there are no shadow sessions",
	}
	if len(shadow) == 0 {
		return w
	}
	b := stat.NewBetting(shadow, monitorLevel)
	low, high := b.Interval()
	w.PointEstimate = new(stat.Mean(shadow))
	w.CILower = &low
	w.CIUpper = &high
	w.LogE = new(b.LogE(0.5))
	w.Members = 1
	return w
}

// decide says at which headlines something is found: those that e-BH finds among the headlines of one kind and, where
// there is a least effect that counts, whose figure is that large. A headline without an e
// value counts as one with 0.
func (m *Monitor) decide(figures [][]watchedFigure) {
	for _, kind := range []Kind{KindFavour, KindLevel} {
		var of []int
		var e []float64
		for i, w := range m.Watched {
			if w.Kind != kind {
				continue
			}
			of = append(of, i)
			e = append(e, 0)
			if w.LogE != nil {
				e[len(e)-1] = math.Exp(*w.LogE)
			}
		}
		stands := stat.EBH(e, m.Level)
		found := 0
		for _, stands := range stands {
			if stands {
				found++
			}
		}
		needed := math.Log(float64(len(e)) / (m.Level * float64(found)))
		for k, i := range of {
			w := &m.Watched[i]
			switch {
			case w.LogE == nil:
			case i < len(figures):
				w.judge(figures[i], stands[k], needed)
			case stands[k]:
				w.Found = true
				w.Reason = fmt.Sprintf("log e = %.1f: the reviewers' choice is not by chance", *w.LogE)
			default:
				w.Reason = noEffect
			}
			w.Alarm = w.Found && kind == KindFavour
		}
	}
}

// judge decides on a headline with figures. Stands says that e-BH finds it, where needed is
// the least log e that it found.
func (w *Watched) judge(figures []watchedFigure, stands bool, needed float64) {
	best := figures[0]
	var carrying []*Metric
	for _, f := range figures {
		if f.logE > best.logE {
			best = f
		}
		if stands && f.logE >= needed && f.counts() {
			carrying = append(carrying, f.Metric)
		}
	}
	switch {
	case len(carrying) > 0:
		if !best.InCommon || !slices.Contains(carrying, best.Metric) {
			best.Metric = largest(carrying)
		}
		w.Found = true
		w.Reason = fmt.Sprintf("log e = %.1f, and at least %.2g %s", *w.LogE, *w.Delta, w.Unit)
		if w.Kind == KindLevel {
			w.Reason += "; ranks do not depend on it, so this is no alarm"
		}
	case stands:
		w.Reason = fmt.Sprintf("log e = %.1f, but smaller than the %.2g %s that count", *w.LogE, *w.Delta, w.Unit)
	default:
		w.Reason = noEffect
	}
	w.show(best.Metric, len(figures))
}

// summary returns one sentence about the alarms.
func (m *Monitor) summary() string {
	var alarms []string
	for _, w := range m.Watched {
		if !w.Alarm {
			continue
		}
		name := strings.ReplaceAll(w.Name, "_", " ")
		if w.Subject != "" {
			name += " (" + w.Subject + ")"
		}
		format := "%s %+.2f %s"
		if w.Delta == nil {
			format = "%s %.2f %s"
		}
		alarms = append(alarms, fmt.Sprintf(format, name, *w.PointEstimate, w.Unit))
	}
	if len(alarms) == 0 {
		return fmt.Sprintf("No alarm after %d sessions", m.Window.Sessions)
	}
	return fmt.Sprintf("Alarm after %d sessions: %s", m.Window.Sessions, strings.Join(alarms, ", "))
}
