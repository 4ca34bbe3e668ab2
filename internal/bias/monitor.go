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

// MonitorFrom is how many questions the figures of a monitor need. Its e values are valid only if the estimates are
// about normal.
const MonitorFrom = 100

const (
	// monitorLevel is the false discovery rate among the headlines, however often the monitor is computed.
	monitorLevel = 0.05
	// monitorTuned is the number of questions for which the mixture is tuned. For this number, no other mixture
	// gives narrower intervals.
	monitorTuned = 500
)

// shadowPreference is the headline of the monitor that comes from shadow sessions.
const shadowPreference = "shadow_preference"

const noEffect = "no effect shown"

// Monitor says whether bias has begun. It may be computed each morning, or after each session, because this does
// not make false alarms more likely. It uses the sessions of the newest council. These have the same
// council_config_version as the newest session that has one. If no session has a version, it uses all sessions.
type Monitor struct {
	SchemaVersion string    `json:"schema_version"`
	GeneratedAt   time.Time `json:"generated_at"`
	Status        Status    `json:"status"`
	ConfigVersion string    `json:"council_config_version"` // is "" if no record has one
	Window        Window    `json:"window"`
	// OtherCouncils counts sessions that were left out because another council held them.
	OtherCouncils int      `json:"sessions_of_other_councils"`
	Filters       []Filter `json:"filters,omitempty"`
	// SessionsNeeded is how many sessions are missing before there are figures.
	SessionsNeeded int `json:"sessions_needed"`
	// RetentionDays is the age from which records are deleted, or null if records are never deleted. After a
	// deletion the monitor, and its bound on false alarms, begin again with the oldest records that are left.
	RetentionDays *int      `json:"retention_days"`
	Headline      string    `json:"headline"` // says in one sentence what was found
	Level         float64   `json:"level"`    // the share of alarms that may be false
	Skipped       []Skipped `json:"skipped"`
	// Watched holds eight headlines, always in the same order. It is empty while data are collected.
	Watched []Watched `json:"headlines"`
}

// Watched is a headline of a monitor.
type Watched struct {
	Name string `json:"headline"`
	// Kind is favour or level. Ranks do not depend on a level, so a level raises no alarm.
	Kind Kind   `json:"kind"`
	Unit string `json:"unit"`
	// Subject is the member that the figure comes from, or "" if the headline has no members. If no effect was
	// found, it is the member with the greatest e value. If an effect was found, it is the member with the largest
	// effect among the members that show the effect. There is one exception: if a member in common shows the effect
	// and has the greatest e value, Subject is that member.
	Subject       string   `json:"subject"`
	PointEstimate *float64 `json:"point_estimate"`
	// CILower and CIUpper are a 95 % interval. It holds for all members at once, however often the monitor is
	// computed.
	CILower *float64 `json:"ci_lower"`
	CIUpper *float64 `json:"ci_upper"`
	// LogE is the natural logarithm of an e value. The e value is evidence against the hypothesis that there is no
	// bias. The e value of a headline is the mean of its members' e values. If some members are what all reviewers
	// have in common, it is the mean of two means: over these members, and over the others. LogE is null if there
	// is no figure.
	LogE    *float64 `json:"log_e"`
	Members int      `json:"members"` // the number of members in the mean of LogE
	// Clusters counts the sessions that the figure is computed from. Sessions of one question count once.
	Clusters int `json:"clusters"`
	// Delta is the least effect that counts, in Unit. If it is null, any effect counts.
	Delta *float64 `json:"delta"`
	// Found says that an effect was found and is large enough to count. Only a favour then raises the alarm.
	Found  bool   `json:"found"`
	Alarm  bool   `json:"alarm"`
	Reason string `json:"reason"` // says why something was found, or why not
}

// Monitor computes the monitor from all records added so far, and from the shadow sessions of the same council.
// shadow holds, for each shadow session in the order of time, the share of the reviewers, 0 to 1, that preferred
// the synthesis. If the context has ended, the result must not be used.
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

// span returns the extent of a window, as reports show it.
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

// keepNewestCouncil keeps only the sessions of the newest council and returns its version. This is the version of
// the newest session that has one.
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

// watch returns the estimates that the monitor uses for a headline. These are its tested members or, if there are
// none, its own figure. watch leaves out estimates without a p and estimates from too few questions.
func (m *Metric) watch() []watchedFigure {
	all := m.tested()
	if len(all) == 0 {
		all = []*Metric{m}
	}
	var figures []watchedFigure
	for _, figure := range all {
		if p := figure.PValue; p != nil && figure.Clusters >= MonitorFrom {
			const least = 1e-300 // below this, the normal score of a p would be infinite
			z := stat.NormalQuantile(max(*p/2, least))
			figures = append(figures, watchedFigure{figure, mixture().LogE(float64(figure.Clusters), z)})
		}
	}
	return figures
}

// mixture returns the distribution that the e values and the intervals of a monitor are computed from.
func mixture() stat.Mixture { return stat.TunedMixture(monitorLevel, monitorTuned) }

// newWatched returns a headline of the monitor before decide sets whether an effect is found.
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

// show copies the subject and the estimate of metric m into the headline w, and computes its interval. w sums up several
// metrics. The argument among is their number, by which the level of the interval is divided.
func (w *Watched) show(m *Metric, among int) {
	w.Subject = m.SubjectName()
	w.PointEstimate = m.PointEstimate
	w.Clusters = m.Clusters
	half := *m.StandardError * mixture().Factor(float64(m.Clusters), monitorLevel/float64(among))
	w.CILower = new(*m.PointEstimate - half)
	w.CIUpper = new(*m.PointEstimate + half)
}

// watchShadow returns the headline of the shadow sessions before decide sets whether an effect is found.
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

// decide sets for each headline whether an effect is found. The e-BH procedure (see [stat.EBH]) must select the
// headline among those of its kind. If there is a least effect that counts, the figure must also be at least that
// large. A headline without an e value counts as one with the e value 0.
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
				w.Reason = fmt.Sprintf("log e = %.1f: the reviewers' choice is not due to chance", *w.LogE)
			default:
				w.Reason = noEffect
			}
			w.Alarm = w.Found && kind == KindFavour
		}
	}
}

// judge decides on a headline with figures. stands says that e-BH selects the headline, and needed is the least log
// e that e-BH selects.
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
		w.Reason = fmt.Sprintf("log e = %.1f, and the effect is at least %.2g %s", *w.LogE, *w.Delta, w.Unit)
		if w.Kind == KindLevel {
			w.Reason += "; ranks do not depend on it, so this is no alarm"
		}
	case stands:
		w.Reason = fmt.Sprintf("log e = %.1f, but the effect is smaller than the %.2g %s that count", *w.LogE, *w.Delta, w.Unit)
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
		name := Topic(w.Name)
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
