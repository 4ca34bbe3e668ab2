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

// The boards must not reveal what a single organisation sent. This must hold even if a reader keeps every board,
// computes differences, and sends events too. So a request for a board computes nothing from the events. Once a day,
// the organisations that have sent enough new sessions are grouped into shares of at least shareOrgs organisations. A
// row of a board is one model, or one indicator of bias. A share holds a snapshot: the sums of each row over its
// organisations, in each window. These sums never change, and the boards include a share completely or not at all. A
// new snapshot of a share is taken when all of its organisations have sent enough new sessions. A row is dropped from a
// window of a share when one of the organisations has too few sessions left in that window.
//
// This suffices for the following reason. Every published figure is a function of sums over whole shares. A snapshot
// takes new sums of a row only if each organisation has sent enough new sessions in that row since the row's last
// snapshot, in any window. Otherwise the row keeps its old sums. If the share has other organisations than before, the
// row is left out instead. New sums are taken in two windows only if the two windows differ for all organisations or
// for none. So the sums of an organisation in one snapshot are in no other snapshot. The same snapshot has the sums of
// at least two other organisations. These sums are in no other snapshot either. If the one organisation had sent other
// events, the two others could have sent events that balance the difference. The boards would then be the same. The
// interval over organisations is computed from squares. Only shares of at least squaredOrgs organisations give their
// squares.
const (
	// shareOrgs is how many organisations a share needs: one that reads the boards, and two others.
	shareOrgs = 3
	// squaredOrgs is how many organisations a share needs before the boards use the share's sum of squares.
	squaredOrgs = 5
	// MinSessions is how many sessions an organisation needs for a row. For another snapshot of the row it needs as
	// many new sessions.
	MinSessions = 5
	// shareDays is how long a share is used after some of its organisations have stopped sending.
	shareDays = 14
	// boardVersion is the version of the file with the shares.
	boardVersion = 1
)

// Windows returns the windows of the boards, in days.
func Windows() []int { return []int{7, 30, 90} }

// Board is what is published about the events of all organisations.
type Board struct {
	Days int `json:"days"` // the window, one of Windows
	// Day is the day (UTC) on which the events were last counted. It is null before the first count.
	Day              *string     `json:"day"`
	MinOrganisations int         `json:"min_organisations"` // how many organisations a row needs
	MinSessions      int         `json:"min_sessions"`      // how many sessions each organisation needs for a row
	Models           []ModelRow  `json:"models"`            // the best first
	Bias             []MetricRow `json:"bias"`
}

// ModelRow is a model on a board. Its Mean is the mean over organisations. The value of an organisation is its mean
// of borda_normalized over its sessions.
type ModelRow struct {
	Model string `json:"model"`
	Figures
}

// MetricRow is an indicator of bias. Its Mean is the mean over organisations. The value of an organisation is its
// mean over the sessions that have the indicator.
type MetricRow struct {
	Metric string `json:"metric"` // position_variance, length_correlation or reviewer_agreement
	Figures
}

// Figures are the figures of one row.
type Figures struct {
	Mean float64 `json:"mean"`
	// CILower and CIUpper are the 95 % interval (Student t) of the mean over organisations. It is computed from the
	// means of the organisations if every share has at least five organisations, and otherwise from the means of the
	// shares. Both are null if the only share with the row has fewer than five organisations, or if nothing varies.
	CILower       *float64 `json:"ci_lower"`
	CIUpper       *float64 `json:"ci_upper"`
	Organisations int      `json:"organisations"`
	Sessions      int      `json:"sessions"`
	AsOf          string   `json:"as_of"` // the day (UTC) on which the oldest of its snapshots was taken
}

// metricPrefix begins the names of rows with an indicator. No model has a name that begins with it.
const metricPrefix = "="

// limits returns the range of the figures in a row.
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

// sum is the number of an organisation's sessions that have a row, and the total of their figures in that row.
type sum struct {
	sessions int
	total    float64
}

func (s sum) plus(other sum) sum { return sum{s.sessions + other.sessions, s.total + other.total} }

// rows returns the figure that an event has for each of its rows.
func (e Event) rows() map[string]float64 {
	byModel := map[string]sum{}
	for _, r := range e.Rankings {
		if r.Model != council.OtherModel { // Any model can have this name.
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

// share is a group of organisations, with a snapshot of their sums.
type share struct {
	Taken         time.Time                    `json:"taken"`
	Organisations []string                     `json:"organisations"`
	Windows       map[int]map[string]shareSums `json:"windows"` // keys: window in days, row
}

// shareSums are the sums of a row over all organisations of a share. Each of these organisations has the row.
type shareSums struct {
	Means    float64 `json:"means"`   // sum of the organisations' means
	Squares  float64 `json:"squares"` // sum of the squares of these means
	Sessions int     `json:"sessions"`
	// Taken is when these sums were computed: at this snapshot of the share, or at an earlier snapshot of the same
	// organisations.
	Taken time.Time `json:"taken"`
}

// boardState is what is published, and what is needed to publish the next boards.
type boardState struct {
	Version int     `json:"version"`
	Day     string  `json:"day"` // the day on which the events were last counted, or ""
	Shares  []share `json:"shares"`
	// Taken holds the time of the newest snapshot for each organisation and row, even if the snapshot is no longer
	// used. The row "" stands for any row.
	Taken map[string]map[string]time.Time `json:"taken"`
}

// organisationSums are the sums of one organisation.
type organisationSums struct {
	windows map[int]map[string]sum // keys: window in days, row; only rows with enough sessions
	fresh   map[int]map[string]int // keys: window in days, row; sessions since the row's newest snapshot
	hasSent bool                   // it has sent enough sessions since its newest snapshot
}

// sumsByName are the sums of all organisations.
type sumsByName map[string]organisationSums

// Publish counts the events and publishes new boards, once a day. A second call on the same day does nothing. When
// it returns without an error, the new state is on disk.
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
	var again []share // the shares that get a new snapshot
	for _, s := range i.board.Shares {
		switch {
		case !slices.ContainsFunc(s.Organisations, func(name string) bool { return !all[name].hasSent }):
			again = append(again, s)
		case now.Sub(s.Taken) >= shareDays*24*time.Hour:
			continue // Its organisations may join other shares.
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

// forgetFresh drops the counts of new sessions in the rows whose newest snapshot was taken at the given time.
func (i *Intake) forgetFresh(taken time.Time) {
	for name, o := range i.orgs {
		for row, at := range i.board.Taken[name] {
			if at.Equal(taken) {
				delete(o.fresh, row)
			}
		}
	}
}

// regrouped returns all shares that get a new snapshot. The argument again has the existing shares that get one. The
// argument free has organisations that belong to no share. These organisations form new shares. If free has too few
// organisations for a share, they join the first share in again. If that share then has enough organisations for two
// shares, it is divided.
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

// sums returns the sums of an organisation in the windows that end today.
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

// groups divides organisations into groups of at least shareOrgs. It puts organisations that use the same models
// together, because a share has only the rows that all of its organisations have.
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

// take takes a snapshot of the organisations of a share, and notes the time. The argument before is the share with its
// last snapshot, which may have no rows. A row gets new sums only if all organisations have sent enough new sessions of
// that row. Otherwise the row keeps its last sums.
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

// hasSent reports whether each of these organisations has a row, with enough new sessions since its last snapshot.
func (all sumsByName) hasSent(names []string, days int, row string) bool {
	return !slices.ContainsFunc(names, func(name string) bool {
		return all[name].windows[days][row].sessions == 0 || all[name].fresh[days][row] < MinSessions
	})
}

// isAlike reports whether a row may be taken in two windows. The row may be taken in both if no organisation has more
// sessions in the longer window, or if each organisation has at least MinSessions more. Otherwise the difference
// between the windows would show what a few organisations have sent.
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

// without returns a share without some of its rows. It drops a row in a window if at least one of the organisations has
// too few sessions left in that window.
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

// Board returns the board of a window, which is one of Windows. It changes at most once a day.
func (i *Intake) Board(days int) Board {
	i.mu.Lock()
	state := i.board // Its parts never change.
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

// figuresOf returns the figures of a row. All of the shares have the row.
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
		// Organisations differ within a share as they do between shares. So the variance of a share's mean is the
		// variance of an organisation, divided by the number of organisations in the share.
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

// boardFile returns the name of the file with the shares.
func (i *Intake) boardFile() string {
	return strings.TrimSuffix(i.o.Path, filepath.Ext(i.o.Path)) + "-board.json"
}

// readBoard reads the state. If the file is damaged, readBoard returns an error and nothing may be published, because
// new boards together with the old ones could reveal too much.
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

// saveBoard replaces the file with the shares. After a crash, it holds either the old state or the new one.
func (i *Intake) saveBoard(state boardState) error {
	data, err := json.Marshal(state)
	if err != nil {
		return err
	}
	return disk.Replace(cmp.Or[disk.Disk](i.o.Disk, disk.OS{}), i.boardFile(), data)
}

// publish is Publish for the daemon. After an error, it tries again in an hour.
func (i *Intake) publish(ctx context.Context) {
	if err := i.Publish(i.o.Now()); err != nil {
		i.o.Log.ErrorContext(ctx, "the board over events stays unchanged; the next attempt is in an hour", "error", err)
	}
}
