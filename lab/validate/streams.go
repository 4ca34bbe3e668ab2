package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/stat"
	"github.com/councild/councild/internal/testkit/biassim"
)

// The tables of streams.
const (
	tableStreams = "Streams of 1000 sessions in which nobody is favoured, %: an alarm, another level of scores, evidence of any size."
	tableShifts  = "Streams in which the monitor has found what is planted, %. Columns: sessions."
)

// inCommon ends the name of a figure that all reviewers of a headline have in common.
const inCommon = "_in_common"

// streamSessions is how long a stream is.
const streamSessions = 1000

// looks is the list of the numbers of sessions after which the monitor is looked at.
func looks() []int { return []int{bias.MonitorFrom, 150, 200, 300, 400, 500, 600, 800, streamSessions} }

// Stream is a kind of simulated stream of sessions. The monitor looks at it again and again while it grows.
// [RunStreams] simulates it.
type Stream struct {
	data Scenario // the data of the stream; its lines are not used
	// shift is the size of the planted effect, in standard deviations of the affected headline's figure for one
	// session. With 0, the effects of data are planted.
	shift float64
	// effect returns the effects that plant a number of points.
	effect func(points float64) biassim.Effects
	// prefer is the share of shadow reviews that prefer the synthesis, 0.1 to 0.9. At 0.5 they prefer neither.
	prefer float64
	// affected is the headline with the planted effect. In a world without favour, it is a headline that may have
	// an effect all the same.
	affected string
	// stop is what a monitor must find to end the looks at a stream.
	stop  finding
	lines []streamLine
}

// finding is what a monitor may find in a stream.
type finding func(s Stream, m bias.Monitor) bool

// streamLine is the share of the streams in which a monitor finds something. The field most is the largest number of
// sessions of such a monitor.
type streamLine struct {
	line
	most  int
	finds finding
}

func (s Stream) name() string {
	return fmt.Sprintf("streams, %s, %d members", s.data.row(), s.data.members)
}

// Streams returns the kinds of streams whose name matches, in the order in which they run.
func Streams(only *regexp.Regexp) []Stream {
	return slices.DeleteFunc(streams(), func(s Stream) bool { return !only.MatchString(s.name()) })
}

// RunStreams simulates streams and returns what the monitor finds in them. It writes a line to progress after each kind
// of stream. Its error is the error of ctx or of progress.
func RunStreams(ctx context.Context, progress io.Writer, all []Stream, o Options) ([]Figure, error) {
	var figures []Figure
	for k, s := range all {
		start := time.Now()
		replicates := max(1, o.Replicates*s.data.percent/100)
		done, err := s.run(ctx, o.Seed, replicates)
		if err != nil {
			return nil, err
		}
		var shares strings.Builder
		for i := range done {
			done[i].widen(Options{Replicates: replicates, Widen: o.Widen})
			shares.WriteString(" " + strings.TrimSpace(done[i].String()))
		}
		took := time.Since(start).Round(100 * time.Millisecond)
		_, err = fmt.Fprintf(progress, "%d/%d %s: %d streams, %s:%s\n",
			k+1, len(all), s.name(), replicates, took, shares.String())
		if err != nil {
			return nil, err
		}
		figures = append(figures, done...)
	}
	return figures, nil
}

// run counts the hits of the lines over the streams of a kind. The streams follow from the name of the kind.
func (s Stream) run(ctx context.Context, seed uint64, replicates int) ([]Figure, error) {
	name := fnv.New64a()
	_, _ = io.WriteString(name, s.name())
	draws := rand.New(rand.NewPCG(seed, name.Sum64())) //nolint:gosec // a simulation is to be repeatable, not secret
	if s.shift != 0 {
		if err := s.plant(ctx, draws); err != nil {
			return nil, err
		}
	}
	figures := make([]Figure, len(s.lines))
	for i, l := range s.lines {
		figures[i] = Figure{line: l.line, trials: replicates}
	}
	var mu sync.Mutex // guards figures
	return figures, forEach(ctx, draws, replicates, func(seed uint64) {
		monitors := s.watch(ctx, seed)
		mu.Lock()
		defer mu.Unlock()
		for i, l := range s.lines {
			if slices.ContainsFunc(monitors, func(m bias.Monitor) bool {
				return m.Window.Sessions <= l.most && l.finds(s, m)
			}) {
				figures[i].hits++
			}
		}
	})
}

// plant plants the effect that shifts the figure by s.shift. It computes that effect from a few reports with an effect
// of a fifth of a point.
func (s *Stream) plant(ctx context.Context, draws *rand.Rand) error {
	const reports, points, sessions = 20, 0.2, 400
	pilot := s.data
	pilot.sessions = sessions
	pilot.effects = s.effect(points)
	figure := 0.
	se := 0.
	err := pilot.each(ctx, draws, reports, func(r bias.Report) {
		metrics := flatten(r.Metrics)
		m, ok := metrics[s.affected+inCommon]
		if !ok {
			m = metrics[s.affected]
		}
		figure += *m.PointEstimate
		se += *m.StandardError
	})
	s.data.effects = s.effect(points * s.shift * se * math.Sqrt(sessions) / math.Abs(figure))
	return err
}

// watch returns what the monitor says at each look at a stream, up to the one that ends it.
func (s Stream) watch(ctx context.Context, seed uint64) []bias.Monitor {
	records := s.data.records(seed)
	collector := newCollector()
	shadow := s.shadow(seed)
	var monitors []bias.Monitor
	sessions := 0
	last := ""
	for _, n := range looks() {
		for len(records) > 0 && (sessions < n || records[0].SessionID == last) {
			if records[0].SessionID != last {
				sessions++
				last = records[0].SessionID
			}
			collector.Add(records[0])
			records = records[1:]
		}
		m := collector.Monitor(ctx, shadow[:n])
		monitors = append(monitors, m)
		if ctx.Err() != nil || s.stop(s, m) {
			break
		}
	}
	return monitors
}

// shadow returns, for each session, the share of two reviewers that preferred the synthesis. In half of the sessions,
// both reviewers have the same opinion. One of five opinions is a tie.
func (s Stream) shadow(seed uint64) []float64 {
	draws := rand.New(rand.NewPCG(seed, 200)) //nolint:gosec // a simulation is to be repeatable, not secret
	const tie = 0.2
	opinion := func() float64 {
		switch u := draws.Float64(); {
		case u < tie:
			return 0.5
		case u < s.prefer+tie/2:
			return 1
		default:
			return 0
		}
	}
	x := make([]float64, streamSessions)
	for i := range x {
		if x[i] = opinion(); draws.IntN(2) == 0 {
			x[i] = (x[i] + opinion()) / 2
		}
	}
	return x
}

// alarm finds what the monitor reports about the affected headline: an alarm, or a level.
func alarm(s Stream, m bias.Monitor) bool {
	return slices.ContainsFunc(m.Watched, func(w bias.Watched) bool { return w.Found && w.Name == s.affected })
}

// otherAlarm finds an alarm of another headline.
func otherAlarm(s Stream, m bias.Monitor) bool {
	return slices.ContainsFunc(m.Watched, func(w bias.Watched) bool { return w.Alarm && w.Name != s.affected })
}

// evidence finds evidence of an effect in the affected headline, whatever the size of the effect.
func evidence(s Stream, m bias.Monitor) bool { return slices.Contains(stand(m), s.affected) }

// anyEvidence finds evidence of an effect in any headline, whatever the size of the effect.
func anyEvidence(_ Stream, m bias.Monitor) bool { return len(stand(m)) > 0 }

// stand is the list of the headlines whose e values alone are significant.
func stand(m bias.Monitor) (names []string) {
	for _, kind := range []bias.Kind{bias.KindFavour, bias.KindLevel} {
		var of []string
		var e []float64
		for _, w := range m.Watched {
			if w.Kind == kind {
				of = append(of, w.Name)
				e = append(e, 0)
				if w.LogE != nil {
					e[len(e)-1] = math.Exp(*w.LogE)
				}
			}
		}
		for i, stands := range stat.EBH(e, alpha) {
			if stands {
				names = append(names, of[i])
			}
		}
	}
	return names
}

// streams returns all kinds, in the order in which they run.
func streams() []Stream {
	var all []Stream
	innocent := func(data Scenario, members int, own bool, percent int) {
		data.members = members
		data.own = own
		data.sessions = streamSessions
		data.percent = percent
		s := Stream{data: data, prefer: 0.5, affected: "harshness", stop: otherAlarm}
		level := 0.05
		if w := data.world; data.favourOnly || w.Spread > 0 || w.Levels > 0 || w.Curve > 0 || w.SCurve > 0 || w.Constant != nil {
			level = 1 // Reviewers who use the scale differently give other scores to answers above or below its middle.
		}
		add := func(column string, bound float64, finds finding) {
			l := line{
				table:  tableStreams,
				row:    fmt.Sprintf("%s, %d members", data.row(), members),
				column: column,
				high:   bound,
				errors: 2,
			}
			s.lines = append(s.lines, streamLine{l, streamSessions, finds})
		}
		add("alarm", 0.05, otherAlarm)
		add("level", level, alarm)
		add("any size", 1, anyEvidence)
		all = append(all, s)
	}
	const some, many = 3, 20
	six := []string{"plain", "gaps, levels", "gaps, S-curves", "cut points, gaps, levels", "7 to 9", "realistic mix"}
	for _, world := range slices.Concat(worlds(), gradedWorlds()) {
		switch {
		case slices.Contains(six, world.what):
			innocent(world, 4, true, many)
		case !strings.Contains(world.what, "20 %"): // a wider spread misleads more
			innocent(world, 4, true, some)
		}
	}
	innocent(worlds()[0], 5, false, some)
	for _, world := range seldomWorlds()[1:] {
		innocent(world, 5, false, some)
	}
	planted := func(what, headline string, s Stream, finds finding, least map[int]float64) {
		s.data.what = what
		s.affected = headline
		s.stop = finds
		s.data.members = 4
		s.data.own = true
		s.data.sessions = streamSessions
		s.data.percent = 4
		s.prefer = max(s.prefer, 0.5)
		for _, n := range []int{200, 300, 500, 800, 1000} {
			l := line{table: tableShifts, row: what, column: strconv.Itoa(n), low: least[n], high: 1, errors: 2}
			s.lines = append(s.lines, streamLine{l, n, finds})
		}
		all = append(all, s)
	}
	const self = "self_preference"
	shift := func(what, headline string, sd float64, effect func(float64) biassim.Effects, least map[int]float64) {
		what = fmt.Sprintf("%s, .%.0f SD: evidence", what, 10*sd)
		planted(what, headline, Stream{shift: sd, effect: effect}, evidence, least)
	}
	toSelf := func(points float64) biassim.Effects { return biassim.Effects{Self: points} }
	toAnchoring := func(points float64) biassim.Effects { return biassim.Effects{Anchoring: -points} }
	shift("anchoring", "anchoring", 0.2, toAnchoring, map[int]float64{800: 0.9})
	shift("anchoring", "anchoring", 0.1, toAnchoring, nil)
	shift("self-preference", self, 0.2, toSelf, map[int]float64{500: 0.5, 800: 0.9})
	shift("self-preference", self, 0.1, toSelf, nil)
	planted("self-preference +0.4: alarm", self, Stream{data: Scenario{effects: biassim.Effects{Self: 0.4}}}, alarm, map[int]float64{500: 0.9})
	planted("first place +0.25: alarm", "position", Stream{data: Scenario{effects: biassim.Effects{Position: []float64{0.25}}}}, alarm, nil)
	planted("harshness -0.5: alarm", "harshness", Stream{data: Scenario{effects: biassim.Effects{Harshness: one(-0.5)}}}, alarm,
		map[int]float64{500: 0.9})
	planted("harshness -1.2 from the middle on: alarm", "harshness", Stream{data: Scenario{effects: biassim.Effects{Jump: one(-1.2)}}}, alarm,
		nil)
	planted("anchoring -0.4: alarm", "anchoring", Stream{data: Scenario{effects: biassim.Effects{Anchoring: -0.4}}}, alarm, nil)
	planted("shadow preference .6: alarm", "shadow_preference", Stream{prefer: 0.6}, alarm, map[int]float64{800: 0.5})
	return all
}
