package consent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/disk"
	"github.com/councild/councild/internal/stat"
)

// What is published over the events of many organisations must not tell what one of them sent, also not to somebody who
// keeps every board that was ever published and computes differences, and who sends events too. So nothing is computed from
// the events when a board is asked for. Once a day, organisations that have sent enough new sessions are put into shares of
// at least shareOrgs. A share is a snapshot of the rows of its organisations in all windows, and from then on enters the
// boards as a whole or not at all: its sums never change. It is taken anew when all of its organisations have sent, and its
// rows are dropped as a whole when one of them has too few sessions left in a window.
//
// Why that suffices: every published figure is a function of sums over whole shares. A row enters a share only if each
// organisation has sent new sessions in it since its last snapshot of that row, in whatever window; otherwise the row stays as
// it was, or is left out if others share it now. It enters two windows only if these differ in all of its organisations. So
// what an organisation has in a snapshot stands in no other one, beside figures of two or more others that stand in no other
// one either. Whatever one organisation had sent, the others of its share could have sent what makes up for it, and all
// boards would be the same. Squares, from which the interval over organisations comes, are used of shares of at least
// squaredOrgs alone.
const (
	// shareOrgs is the least number of organisations of a share: one that reads the boards, and two others.
	shareOrgs = 3
	// squaredOrgs is the least number of organisations whose squares may be used.
	squaredOrgs = 5
	// MinSessions is the least number of sessions of an organisation in a row, and of new ones for another snapshot.
	MinSessions = 5
	// shareDays is how long a share lives of which not all organisations send any more.
	shareDays = 14
	// boardVersion is the version of the file that keeps the shares.
	boardVersion = 1
)

// Windows returns the days that a board looks back.
func Windows() []int { return []int{7, 30, 90} }

// Board is what the events of all organisations say.
type Board struct {
	Days             int         `json:"days"`              // that it looks back, one of Windows
	Day              *string     `json:"day"`               // on which the events were looked at last (UTC); null: not yet
	MinOrganisations int         `json:"min_organisations"` // of a row
	MinSessions      int         `json:"min_sessions"`      // of each of them
	Models           []ModelRow  `json:"models"`            // the best first
	Bias             []MetricRow `json:"bias"`
}

// ModelRow is the place of a model: the mean over organisations of their means over sessions of borda_normalized.
type ModelRow struct {
	Model string `json:"model"`
	Figures
}

// MetricRow is an indicator of bias: the mean over organisations of their means over sessions that have it.
type MetricRow struct {
	Metric string `json:"metric"` // position_variance, length_correlation or reviewer_agreement
	Figures
}

// Figures are those of one row.
type Figures struct {
	Mean float64 `json:"mean"`
	// CILower and CIUpper are the 95 % interval (Student t) of the mean over organisations: from their means where every share
	// has at least five, else from the means of the shares. Null where there is one smaller share, and where nothing varies.
	CILower       *float64 `json:"ci_lower"`
	CIUpper       *float64 `json:"ci_upper"`
	Organisations int      `json:"organisations"`
	Sessions      int      `json:"sessions"`
	AsOf          string   `json:"as_of"` // the day (UTC) on which the oldest of its snapshots was taken
}

// metricPrefix begins the name of a row of an indicator. No name of a model begins so.
const metricPrefix = "="

// limits returns between which figures a row lies.
func limits(row string) (least, most float64) {
	switch row {
	case metricPrefix + "position_variance":
		return 0, maxVariance
	case metricPrefix + "length_correlation":
		return -1, 1
	default:
		return 0, 1
	}
}

// sum is what the sessions of an organisation add up to in a row.
type sum struct {
	sessions int
	total    float64
}

func (s sum) plus(other sum) sum { return sum{s.sessions + other.sessions, s.total + other.total} }

// rows returns what an event says in each row.
func (e Event) rows() map[string]float64 {
	byModel := map[string]sum{}
	for _, r := range e.Rankings {
		if r.Model != council.OtherModel { // any model can stand behind it
			byModel[r.Model] = byModel[r.Model].plus(sum{1, r.BordaNormalized})
		}
	}
	rows := map[string]float64{}
	for model, s := range byModel {
		rows[model] = s.total / float64(s.sessions)
	}
	if b := e.BiasIndicators; b != nil {
		for name, figure := range map[string]*float64{
			"position_variance": b.PositionVariance, "length_correlation": b.LengthCorrelation, "reviewer_agreement": b.ReviewerAgreement,
		} {
			if figure != nil {
				rows[metricPrefix+name] = *figure
			}
		}
	}
	return rows
}

// share is a snapshot of some organisations.
type share struct {
	Taken         time.Time                    `json:"taken"`
	Organisations []string                     `json:"organisations"`
	Windows       map[int]map[string]shareSums `json:"windows"` // by days and row
}

// shareSums are sums over the organisations of a share, all of which have the row.
type shareSums struct {
	Means    float64 `json:"means"`   // of their means
	Squares  float64 `json:"squares"` // of the squares of their means
	Sessions int     `json:"sessions"`
	// Taken is when this was computed: at the snapshot of the share, or at an earlier one of the same organisations.
	Taken time.Time `json:"taken"`
}

// boardState is what is published, and what it takes to publish the next.
type boardState struct {
	Version int     `json:"version"`
	Day     string  `json:"day"` // on which the events were looked at last; "" before that
	Shares  []share `json:"shares"`
	// Taken says by organisation and row when its newest snapshot was taken, also one that is gone, and under "" of any row.
	Taken map[string]map[string]time.Time `json:"taken"`
}

// organisationSums are the sums of one organisation.
type organisationSums struct {
	windows map[int]map[string]sum // by days and row, where they are enough
	fresh   map[int]map[string]int // sessions since its newest snapshot of the row, by days and row
	hasSent bool                   // enough sessions since its newest snapshot
}

// sumsByName are the sums of all organisations.
type sumsByName map[string]organisationSums

// Publish looks at the events once a day: a second call on the same day does nothing. When it returns without an error, what
// is published is on disk.
func (i *Intake) Publish(now time.Time) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	now = now.UTC()
	today := now.Truncate(24 * time.Hour)
	if day := today.Format(time.DateOnly); day <= i.board.Day {
		return nil
	}
	all := sumsByName{}
	for name, o := range i.orgs {
		all[name] = o.sums(today)
	}
	next := boardState{
		Version: boardVersion,
		Day:     today.Format(time.DateOnly),
		Shares:  []share{},
		Taken:   map[string]map[string]time.Time{},
	}
	for name, rows := range i.board.Taken {
		next.Taken[name] = maps.Clone(rows)
	}
	shared := map[string]bool{}
	var again []share // are taken anew
	for _, s := range i.board.Shares {
		switch {
		case !slices.ContainsFunc(s.Organisations, func(name string) bool { return !all[name].hasSent }):
			again = append(again, s)
		case now.Sub(s.Taken) >= shareDays*24*time.Hour:
			continue // its organisations are free for other shares
		default:
			next.Shares = append(next.Shares, s.without(all))
		}
		for _, name := range s.Organisations {
			shared[name] = true
		}
	}
	var free []string
	for name, o := range all {
		if !shared[name] && o.hasSent {
			free = append(free, name)
		}
	}
	again = regrouped(again, free, all)
	for _, before := range again {
		next.Shares = append(next.Shares, next.take(now, before, all))
	}
	if err := i.saveBoard(next); err != nil {
		return fmt.Errorf("writing what is published of the events: %w", err)
	}
	i.board = next
	i.forgetFresh(now)
	return nil
}

// forgetFresh drops the counts of fresh sessions of each row whose newest snapshot was taken at a time.
func (i *Intake) forgetFresh(taken time.Time) {
	for name, o := range i.orgs {
		for row, at := range i.board.Taken[name] {
			if at.Equal(taken) {
				delete(o.fresh, row)
			}
		}
	}
}

// regrouped returns the shares to take anew, and shares of the organisations that are in none yet. If those organisations
// are too few for a share of their own, they join the first one.
func regrouped(again []share, free []string, all sumsByName) []share {
	if len(again) > 0 && len(free) < shareOrgs {
		again[0] = share{Organisations: slices.Concat(again[0].Organisations, free)}
		free = nil
		if len(again[0].Organisations) >= 2*shareOrgs {
			free = again[0].Organisations
			again = again[1:]
		}
	}
	for _, names := range groups(free, all) {
		again = append(again, share{Organisations: names})
	}
	return again
}

// sums returns what an organisation has in the windows that end with today.
func (o *organisation) sums(today time.Time) organisationSums {
	all := organisationSums{
		windows: map[int]map[string]sum{}, fresh: map[int]map[string]int{}, hasSent: o.fresh[""][""] >= MinSessions,
	}
	for _, days := range Windows() {
		first := today.AddDate(0, 0, 1-days).Format(time.DateOnly)
		last := today.Format(time.DateOnly)
		sums := map[string]sum{}
		fresh := map[string]int{}
		for day, rows := range o.days {
			if day >= first && day <= last {
				for row, s := range rows {
					sums[row] = sums[row].plus(s)
					fresh[row] += o.fresh[row][day]
				}
			}
		}
		maps.DeleteFunc(sums, func(_ string, s sum) bool { return s.sessions < MinSessions })
		all.windows[days] = sums
		all.fresh[days] = fresh
	}
	return all
}

// groups puts organisations into groups of at least shareOrgs. Those that use the same models come together, because a share
// has only the rows that all of its organisations have.
func groups(names []string, all sumsByName) [][]string {
	n := len(names) / shareOrgs
	uses := map[string]string{}
	for _, name := range names {
		uses[name] = strings.Join(slices.Sorted(maps.Keys(all[name].windows[KeptDays])), " ")
	}
	names = slices.SortedFunc(slices.Values(names), func(a, b string) int {
		return cmp.Or(cmp.Compare(uses[a], uses[b]), cmp.Compare(a, b))
	})
	found := make([][]string, n)
	for g := range found {
		found[g] = slices.Clone(names[g*len(names)/n : (g+1)*len(names)/n])
	}
	return found
}

// take returns a snapshot of the organisations of a share, and notes it. A row in which not all of them have sent stays as it
// was before; the share before may have no rows.
func (b *boardState) take(now time.Time, before share, all sumsByName) share {
	s := before.without(all)
	s.Taken = now
	for _, name := range s.Organisations {
		b.note(name, "", now)
	}
	for _, row := range slices.Sorted(maps.Keys(all[s.Organisations[0]].windows[KeptDays])) {
		var taken []int // windows in which the row is taken
		for _, days := range Windows() {
			if !all.hasSent(s.Organisations, days, row) || slices.ContainsFunc(taken, func(shorter int) bool {
				return !all.isAlike(s.Organisations, shorter, days, row)
			}) {
				continue
			}
			sums := shareSums{Taken: now}
			for _, name := range s.Organisations {
				own := all[name].windows[days][row]
				mean := own.total / float64(own.sessions)
				sums.Means += mean
				sums.Squares += mean * mean
				sums.Sessions += own.sessions
			}
			s.Windows[days][row] = sums
			taken = append(taken, days)
		}
		for _, name := range s.Organisations {
			if len(taken) > 0 {
				b.note(name, row, now)
			}
		}
	}
	return s
}

// hasSent reports whether each of some organisations has a row, with enough new sessions since its last snapshot.
func (all sumsByName) hasSent(names []string, days int, row string) bool {
	return !slices.ContainsFunc(names, func(name string) bool {
		return all[name].windows[days][row].sessions == 0 || all[name].fresh[days][row] < MinSessions
	})
}

// isAlike reports whether a row may be in a longer window beside a shorter one: the longer has nothing more of any of the
// organisations, or enough of each. Otherwise the difference between the windows would tell of the few that have more.
func (all sumsByName) isAlike(names []string, shorter, longer int, row string) bool {
	none := true
	enough := true
	for _, name := range names {
		more := all[name].windows[longer][row].sessions - all[name].windows[shorter][row].sessions
		none = none && more == 0
		enough = enough && more >= MinSessions
	}
	return none || enough
}

func (b *boardState) note(name, row string, at time.Time) {
	if b.Taken[name] == nil {
		b.Taken[name] = map[string]time.Time{}
	}
	b.Taken[name][row] = at
}

// without returns a share without the rows that not all of its organisations have any more.
func (s share) without(all sumsByName) share {
	kept := map[int]map[string]shareSums{}
	for _, days := range Windows() {
		kept[days] = map[string]shareSums{}
		for row, sums := range s.Windows[days] {
			if !slices.ContainsFunc(s.Organisations, func(name string) bool { return all[name].windows[days][row].sessions == 0 }) {
				kept[days][row] = sums
			}
		}
	}
	s.Windows = kept
	return s
}

// Board returns what is published over so many days, one of Windows. It changes once a day at most.
func (i *Intake) Board(days int) Board {
	i.mu.Lock()
	state := i.board // its parts do not change
	i.mu.Unlock()
	b := Board{
		Days:             days,
		MinOrganisations: i.o.MinOrganisations,
		MinSessions:      MinSessions,
		Models:           []ModelRow{},
		Bias:             []MetricRow{},
	}
	if state.Day != "" {
		b.Day = &state.Day
	}
	byRow := map[string][]share{}
	for _, s := range state.Shares {
		for row := range s.Windows[days] {
			byRow[row] = append(byRow[row], s)
		}
	}
	for _, row := range slices.Sorted(maps.Keys(byRow)) {
		figures := figuresOf(byRow[row], days, row)
		if figures.Organisations < i.o.MinOrganisations {
			continue
		}
		if metric, ok := strings.CutPrefix(row, metricPrefix); ok {
			b.Bias = append(b.Bias, MetricRow{metric, figures})
		} else {
			b.Models = append(b.Models, ModelRow{row, figures})
		}
	}
	slices.SortStableFunc(b.Models, func(a, b ModelRow) int { return cmp.Compare(b.Mean, a.Mean) })
	return b
}

// figuresOf returns the figures of a row that all of the shares have.
func figuresOf(shares []share, days int, row string) Figures {
	f := Figures{}
	means := 0.0
	squares := 0.0
	oldest := shares[0].Windows[days][row].Taken
	areLarge := true
	for _, s := range shares {
		sums := s.Windows[days][row]
		f.Organisations += len(s.Organisations)
		f.Sessions += sums.Sessions
		means += sums.Means
		squares += sums.Squares
		areLarge = areLarge && len(s.Organisations) >= squaredOrgs
		if sums.Taken.Before(oldest) {
			oldest = sums.Taken
		}
	}
	n := float64(f.Organisations)
	mean := means / n
	df := n - 1
	f.Mean = stat.Round(mean)
	f.AsOf = oldest.Format(time.DateOnly)
	deviations := squares - n*mean*mean
	if !areLarge {
		// Organisations of one share differ as those of others do, so that the variance of a share's mean is that of an
		// organisation over their number.
		deviations = 0
		df = float64(len(shares) - 1)
		for _, s := range shares {
			size := float64(len(s.Organisations))
			off := s.Windows[days][row].Means/size - mean
			deviations += size * off * off
		}
	}
	if df > 0 && deviations > 1e-12 {
		half := stat.StudentQuantile(.975, df) * math.Sqrt(deviations/df/n)
		least, most := limits(row)
		f.CILower = new(stat.Round(max(least, mean-half)))
		f.CIUpper = new(stat.Round(min(most, mean+half)))
	}
	return f
}

// boardFile returns the file that keeps the shares.
func (i *Intake) boardFile() string {
	return strings.TrimSuffix(i.o.Path, filepath.Ext(i.o.Path)) + "-board.json"
}

// readBoard reads what is published. Without it nothing may be published: what was known before could be told from it.
func (i *Intake) readBoard() error {
	data, err := os.ReadFile(i.boardFile())
	if errors.Is(err, fs.ErrNotExist) {
		i.board = boardState{Version: boardVersion, Taken: map[string]map[string]time.Time{}}
		return nil
	}
	if err == nil {
		err = json.Unmarshal(data, &i.board)
	}
	if err == nil && (i.board.Version != boardVersion || i.board.Taken == nil) {
		err = errors.New("it is of another version")
	}
	if err != nil {
		return fmt.Errorf("%s, which says what is published of the events, cannot be read (%w): "+
			"bring it back from a backup", i.boardFile(), err)
	}
	return nil
}

// saveBoard replaces the file that keeps the shares. After a crash the old state is there, or the new one.
func (i *Intake) saveBoard(state boardState) error {
	data, err := json.Marshal(state)
	if err != nil {
		return err
	}
	return disk.Replace(cmp.Or[disk.Disk](i.o.Disk, disk.OS{}), i.boardFile(), data)
}

// publish is Publish for the daemon, which tries again in an hour.
func (i *Intake) publish(ctx context.Context) {
	if err := i.Publish(i.o.Now()); err != nil {
		i.o.Log.ErrorContext(ctx, "the board over events stays as it is; the next try is in an hour", "error", err)
	}
}
