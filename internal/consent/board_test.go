package consent_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/consent"
	"github.com/councild/councild/internal/testkit"
)

// reported is one session of one organisation, as a test knows it.
type reported struct {
	came  time.Time
	day   string
	model string
	borda float64
}

// world is an intake with all that was sent to it.
type world struct {
	*consent.Intake
	path  string
	clock *clock
	sent  map[string][]reported
	next  int // event
}

func newWorld(t *testing.T, least int) *world {
	t.Helper()
	w := &world{
		path:  filepath.Join(t.TempDir(), "intake.jsonl"),
		clock: &clock{now: time.Date(2026, 3, 1, 1, 0, 0, 0, time.UTC)}, sent: map[string][]reported{},
	}
	w.open(t, least)
	t.Cleanup(func() { _ = w.Close() })
	return w
}

func (w *world) open(t *testing.T, least int) {
	t.Helper()
	i, err := consent.OpenIntake(t.Context(), consent.IntakeOptions{
		Path: w.path, Log: slog.New(slog.DiscardHandler), Now: w.clock.Now, MinOrganisations: least,
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Intake = i
}

// send sends sessions of one organisation that began some days ago, one for each figure.
func (w *world) send(t *testing.T, organisation, model string, daysAgo int, bordas ...float64) {
	t.Helper()
	now := w.clock.Now()
	day := now.AddDate(0, 0, -daysAgo).Format(time.DateOnly)
	var texts []json.RawMessage
	for _, borda := range bordas {
		w.next++
		id := fmt.Sprintf("00000000-0000-4000-8000-%012d", w.next)
		texts = append(texts, json.RawMessage(fmt.Sprintf(`{"schema_version":"1.1.0","event_id":%q,"session_id":%q,"day":%q,"category":null,`+
			`"rankings":[{"model":%q,"rank":1,"borda_normalized":%v},{"model":"other","rank":2,"borda_normalized":0}],`+
			`"bias_indicators":{"position_variance":null,"length_correlation":%v,"reviewer_agreement":null,"flags":[]}}`,
			id, id, day, model, borda, borda-.5)))
		w.sent[organisation] = append(w.sent[organisation], reported{now, day, model, borda})
	}
	if got := take(t, w.Intake, organisation, texts...); got != [3]int{len(texts), 0, 0} {
		t.Fatalf("%s: %v of %d events", organisation, got, len(texts))
	}
}

// tomorrow goes on to the next day, and to the time after the events were looked at.
func (w *world) tomorrow(t *testing.T) {
	t.Helper()
	w.clock.add(23 * time.Hour)
	if err := w.Publish(w.clock.Now()); err != nil {
		t.Fatal(err)
	}
	w.clock.add(time.Hour)
}

// mean returns the mean of an organisation's sessions with a model that came until then, over the days that end with its day.
func (w *world) mean(organisation, model string, days int, then time.Time) float64 {
	first, last := then.AddDate(0, 0, 1-days).Format(time.DateOnly), then.Format(time.DateOnly)
	sum, n := 0.0, 0
	for _, s := range w.sent[organisation] {
		if s.model == model && !s.came.After(then) && s.day >= first && s.day <= last {
			sum, n = sum+s.borda, n+1
		}
	}
	return sum / float64(n)
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

func TestBoard(t *testing.T) {
	w := newWorld(t, 5)
	means := []float64{.2, .4, .5, .7, .9}
	for k, mean := range means {
		w.send(t, fmt.Sprintf("org%d", k), "maker/x", 0, mean-.1, mean, mean, mean, mean+.1)
	}
	w.send(t, "few", "maker/x", 0, 0, 0, 0, 0) // one session too few
	w.send(t, "org0", "maker/alone", 0, 1, 1, 1, 1, 1)
	if b := w.Board(7); len(b.Models) > 0 {
		t.Errorf("before the events were looked at there is %+v", b.Models)
	}
	w.tomorrow(t)
	for _, days := range consent.Windows() {
		b := w.Board(days)
		if b.Days != days || b.MinOrganisations != 5 || b.MinSessions != 5 || *b.Day != "2026-03-02" || len(b.Models) != 1 || len(b.Bias) != 1 {
			t.Fatalf("over %d days: %+v", days, b)
		}
		row := b.Models[0]
		if row.Model != "maker/x" || !near(row.Mean, .54) || row.Organisations != 5 || row.Sessions != 25 || row.AsOf != "2026-03-02" {
			t.Errorf("over %d days: %+v", days, row)
		}
		// Student's t for 4 degrees of freedom times the standard error of five means.
		half := 2.7764451 * math.Sqrt(.073/5)
		if math.Abs(*row.CILower-(.54-half)) > 1e-6 || math.Abs(*row.CIUpper-(.54+half)) > 1e-6 {
			t.Errorf("over %d days the interval is %v to %v", days, *row.CILower, *row.CIUpper)
		}
		if bias := b.Bias[0]; bias.Metric != "length_correlation" || !near(bias.Mean, (4*.04+.2*5+(.5*5+.2*0))/5-.5) && bias.Organisations != 5 {
			t.Errorf("over %d days the bias is %+v", days, bias)
		}
	}
}

// Fewer organisations than a row needs have none, and neither have those of which one has few sessions.
func TestBoardHides(t *testing.T) {
	w := newWorld(t, 5)
	for k := range 4 {
		w.send(t, fmt.Sprintf("org%d", k), "maker/x", 0, .5, .5, .5, .5, .5)
	}
	w.tomorrow(t)
	if b := w.Board(30); len(b.Models) > 0 || len(b.Bias) > 0 {
		t.Errorf("four organisations are shown: %+v", b)
	}
	w.send(t, "org4", "maker/x", 0, .5, .5, .5, .5)
	w.tomorrow(t)
	if b := w.Board(30); len(b.Models) > 0 {
		t.Errorf("an organisation with four sessions counts: %+v", b.Models)
	}
}

// A board stays as it is until enough organisations have sent, leaves as a whole when one has aged out, and is the same after
// a restart.
func TestBoardChanges(t *testing.T) {
	w := newWorld(t, 5)
	names := []string{"a", "b", "c", "d", "e"}
	all := func(figure float64, names ...string) {
		for _, name := range names {
			w.send(t, name, "maker/x", 0, figure, figure, figure, figure, figure)
		}
	}
	all(.5, names...)
	w.tomorrow(t)
	first := w.Board(30)
	if len(first.Models) != 1 || !near(first.Models[0].Mean, .5) {
		t.Fatalf("%+v", first)
	}
	same := func(what string) {
		t.Helper()
		if b := w.Board(30); !reflect.DeepEqual(b.Models, first.Models) || !reflect.DeepEqual(b.Bias, first.Bias) {
			t.Errorf("after %s the board is %+v", what, b.Models)
		}
	}
	all(1, "a")
	same("one had sent, on the same day")
	w.tomorrow(t)
	same("one had sent")
	w.send(t, "b", "maker/x", 0, 1, 1, 1, 1) // too few to tell its mean with others
	w.tomorrow(t)
	same("one had sent, and another one little")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	w.open(t, 5)
	same("a restart")
	all(1, "b", "c", "d")
	w.tomorrow(t)
	same("all but one had sent")
	all(1, "e")
	w.tomorrow(t)
	if b := w.Board(30); len(b.Models) != 1 || !(b.Models[0].Mean > .7) {
		t.Errorf("after all had sent the board is %+v", b.Models)
	}
	var rows []int // of seven days, on each day after
	for range 10 {
		w.tomorrow(t)
		if n := len(w.Board(7).Models); len(rows) == 0 || rows[len(rows)-1] != n {
			rows = append(rows, n)
		}
	}
	if !slices.Equal(rows, []int{1, 0}) {
		t.Errorf("when nobody sends any more, the rows go %v", rows)
	}
}

// Without what was published, nothing is: differences to it would tell.
func TestBoardNeedsItsState(t *testing.T) {
	w := newWorld(t, 3)
	w.tomorrow(t)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(strings.TrimSuffix(w.path, ".jsonl")+"-board.json", []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := consent.OpenIntake(t.Context(), consent.IntakeOptions{Path: w.path, Log: slog.New(slog.DiscardHandler), MinOrganisations: 3})
	if err == nil || !strings.Contains(err.Error(), "backup") {
		t.Errorf("with a broken state: %v", err)
	}
}

// publication is the composition of a published row: the sum over the figures of which its mean is made. An attacker knows at
// most the sums; the test also tells it which figure of which organisation is in which.
type publication map[figure]bool

// figure is what an organisation has in a row: as long as its value is the same, it counts as the same unknown.
type figure struct {
	organisation string
	value        float64
}

// recovers reports whether a linear combination of the publications depends on the figures of one organisation alone, besides
// those that are known. Then its figures, or their change, can be computed. The arithmetic is modulo a prime.
func recovers(publications []publication, organisation string, known string) bool {
	var others, all []figure
	for _, p := range publications {
		for f := range p {
			if f.organisation == known {
				continue
			}
			all = append(all, f)
			if f.organisation != organisation {
				others = append(others, f)
			}
		}
	}
	return rank(publications, all) > rank(publications, others)
}

// rank returns the rank of the matrix of the publications by some figures.
func rank(publications []publication, figures []figure) int {
	const prime = 1<<31 - 1
	slices.SortFunc(figures, func(a, b figure) int {
		return slices.Compare([]string{a.organisation, fmt.Sprint(a.value)}, []string{b.organisation, fmt.Sprint(b.value)})
	})
	figures = slices.Compact(figures)
	rows := make([][]int64, len(publications))
	for i, p := range publications {
		rows[i] = make([]int64, len(figures))
		for k, f := range figures {
			if p[f] {
				rows[i][k] = 1
			}
		}
	}
	rank := 0
	for k := range figures {
		pivot := -1
		for i := rank; i < len(rows); i++ {
			if rows[i][k] != 0 {
				pivot = i
				break
			}
		}
		if pivot < 0 {
			continue
		}
		rows[rank], rows[pivot] = rows[pivot], rows[rank]
		inverse := power(rows[rank][k], prime-2, prime)
		for i := rank + 1; i < len(rows); i++ {
			if factor := rows[i][k] * inverse % prime; factor != 0 {
				for j := k; j < len(figures); j++ {
					rows[i][j] = ((rows[i][j]-factor*rows[rank][j])%prime + prime) % prime
				}
			}
		}
		rank++
	}
	return rank
}

func power(base, exponent, modulus int64) int64 {
	result := int64(1)
	for ; exponent > 0; exponent >>= 1 {
		if exponent&1 == 1 {
			result = result * base % modulus
		}
		base = base * base % modulus
	}
	return result
}

// compositions returns, by model, of what each published row over so many days is made.
func (w *world) compositions(t *testing.T, days int) map[string]publication {
	t.Helper()
	data, err := os.ReadFile(strings.TrimSuffix(w.path, ".jsonl") + "-board.json")
	if err != nil {
		t.Fatal(err)
	}
	var state struct {
		Shares []struct {
			Organisations []string `json:"organisations"`
			Windows       map[int]map[string]struct {
				Means float64   `json:"means"`
				Taken time.Time `json:"taken"`
			} `json:"windows"`
		} `json:"shares"`
	}
	if err := json.Unmarshal(data, &state); err != nil {
		t.Fatal(err)
	}
	found := map[string]publication{}
	for _, row := range w.Board(days).Models {
		p, sum := publication{}, 0.0
		for _, s := range state.Shares {
			sums, ok := s.Windows[days][row.Model]
			if !ok {
				continue
			}
			own := 0.0
			for _, name := range s.Organisations {
				mean := w.mean(name, row.Model, days, sums.Taken)
				p[figure{name, mean}] = true
				own += mean
			}
			if !near(own, sums.Means) {
				t.Fatalf("a share of %v has %v, and its organisations %v", s.Organisations, sums.Means, own)
			}
			sum += own
		}
		if !near(sum/float64(row.Organisations), row.Mean) || len(p) != row.Organisations {
			t.Fatalf("%s: the mean is %v of %d, computed anew it is %v of %d", row.Model, row.Mean, row.Organisations, sum, len(p))
		}
		found[row.Model] = p
	}
	return found
}

// naive returns what a publisher without any rule would publish: the mean of all organisations with enough sessions.
func (w *world) naive(model string, days int) publication {
	p, now := publication{}, w.clock.Now()
	first := now.AddDate(0, 0, 1-days).Format(time.DateOnly)
	for name, sessions := range w.sent {
		n := 0
		for _, s := range sessions {
			if s.model == model && s.day >= first {
				n++
			}
		}
		if n >= consent.MinSessions {
			p[figure{name, w.mean(name, model, days, now)}] = true
		}
	}
	return p
}

// Simulated histories of 5 to 20 organisations that come, go quiet, send late and use other models: who keeps all boards of
// all windows, knows who is in which share, and sends events too, cannot compute what any other organisation sent.
func TestDifferencing(t *testing.T) {
	testkit.Slow(t)
	const days = 40
	models := []string{"maker/x", "maker/y"}
	attacks, leaks, shown := 0, 0, 0
	for _, n := range []int{5, 7, 11, 20} {
		rng := rand.New(rand.NewPCG(uint64(n), 7))
		w := newWorld(t, 5)
		published, plain := map[string][]publication{}, map[string][]publication{}
		var names []string
		for k := range n {
			names = append(names, fmt.Sprintf("org%02d", k))
		}
		for range days {
			for k, name := range names {
				quiet := int(w.clock.Now().Unix()/86400/9)%4 == k%4 && k%3 == 0 // for nine days now and then
				if quiet || rng.IntN(3) == 0 {
					continue
				}
				for _, model := range models {
					if model == "maker/y" && (k%4 == 3 || rng.IntN(2) == 0) {
						continue // not all use it, and not each day
					}
					bordas := make([]float64, rng.IntN(8))
					for i := range bordas {
						bordas[i] = math.Round(rng.Float64()*1e6) / 1e6
					}
					w.send(t, name, model, rng.IntN(3)*rng.IntN(5), bordas...)
				}
			}
			w.tomorrow(t)
			for _, window := range consent.Windows() {
				now := w.compositions(t, window)
				for _, model := range models {
					if p := now[model]; p != nil && !slices.ContainsFunc(published[model], func(q publication) bool { return maps.Equal(p, q) }) {
						published[model] = append(published[model], p)
					}
					if p := w.naive(model, window); len(p) >= 5 {
						plain[model] = append(plain[model], p)
					}
				}
			}
		}
		for _, model := range models {
			shown += len(published[model])
			insider := names[rng.IntN(n)]
			for _, name := range names {
				for _, known := range []string{"", insider} {
					if name == known {
						continue
					}
					attacks++
					if recovers(published[model], name, known) {
						t.Errorf("of %d organisations, %s can be told from the boards of %s by who knows %q", n, name, model, known)
					}
					if n == 5 && recovers(plain[model], name, known) {
						leaks++
					}
				}
			}
		}
		if len(published["maker/x"]) < 4 {
			t.Errorf("of %d organisations only %d boards were published", n, len(published["maker/x"]))
		}
	}
	if leaks == 0 {
		t.Error("the attack recovers nothing from a publisher without any rule: it proves nothing")
	}
	t.Logf("%d attacks on %d different rows recovered nothing; without the rule %d succeed of 5 organisations", attacks, shown, leaks)
}
