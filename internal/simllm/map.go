package simllm

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Fact is a statement that an answer makes in one sentence. Two models with different values for one name contradict
// each other.
type Fact struct{ Name, Value string }

func (f Fact) sentence() string { return "The value of " + f.Name + " is " + f.Value + "." }

// factOf returns the fact that a line of an answer states.
func factOf(line string) (f Fact, ok bool) {
	line, begins := strings.CutPrefix(strings.TrimSpace(line), "The value of ")
	line, ends := strings.CutSuffix(line, ".")
	f.Name, f.Value, ok = strings.Cut(line, " is ")
	return f, ok && begins && ends
}

// MapForm says how a chairman writes a map.
type MapForm string

// The forms of a map.
const (
	MapWhole    MapForm = ""         // as the prompt asks for it
	MapNone     MapForm = "none"     // the chairman writes no map
	MapUnmarked MapForm = "unmarked" // the line before the map is missing
	MapCut      MapForm = "cut"      // the map ends in the middle
	MapProse    MapForm = "prose"    // a sentence stands in place of the JSON
)

// Maps says how a model writes a map as chairman.
type Maps struct {
	Form MapForm
	// Invent is the probability, 0 to 1, that a quote stands in no answer.
	Invent float64
	// Miss is the probability, 0 to 1, that a dispute is left out.
	Miss float64
}

func (m Maps) known() bool {
	return slices.Contains([]MapForm{MapWhole, MapNone, MapUnmarked, MapCut, MapProse}, m.Form)
}

// readMaps reads the settings of a model that are about facts and maps, and removes them from values. It reports whether
// there were any.
func (m *Model) readMaps(values url.Values) (found bool, err error) {
	for _, text := range values["fact"] {
		name, value, ok := strings.Cut(text, ":")
		if !ok || strings.TrimSpace(name) == "" || strings.TrimSpace(value) == "" {
			return true, errors.New("fact has no value: write it as in ?fact=port:8080")
		}
		m.Facts = append(slices.Clone(m.Facts), Fact{strings.TrimSpace(name), strings.TrimSpace(value)})
	}
	if values.Has("map") {
		if m.Maps.Form = MapForm(values.Get("map")); !m.Maps.known() {
			return true, fmt.Errorf("map is not none, unmarked, cut or prose: %q", m.Maps.Form)
		}
	}
	for name, rate := range map[string]*float64{"invent": &m.Maps.Invent, "miss": &m.Maps.Miss} {
		if !values.Has(name) {
			continue
		}
		if *rate, err = strconv.ParseFloat(values.Get(name), 64); err != nil || !(*rate >= 0 && *rate <= 1) {
			*rate = math.NaN()
			return true, fmt.Errorf("%s is not a number from 0 to 1: write one, as in ?%[1]s=.5", name)
		}
	}
	for _, name := range []string{"fact", "map", "invent", "miss"} {
		found = found || values.Has(name)
		delete(values, name)
	}
	return found, nil
}

// state adds the model's facts to an answer.
func (m *model) state(text string) string {
	if len(m.Facts) == 0 {
		return text
	}
	lines := []string{text, ""}
	for _, f := range m.Facts {
		lines = append(lines, f.sentence())
	}
	return strings.Join(lines, "\n")
}

// These types are the map that a chairman writes.
type (
	mapTail struct {
		Agreed      []mapClaim   `json:"agreed"`
		Disputed    []mapDispute `json:"disputed"`
		OnlyOneSaid []mapClaim   `json:"only_one_said"`
		Open        []string     `json:"open"`
	}
	mapDispute struct {
		About string     `json:"about"`
		Sides []mapClaim `json:"sides"`
	}
	mapClaim struct {
		Claim  string     `json:"claim"`
		Quotes []mapQuote `json:"quotes"`
	}
	mapQuote struct {
		Answer string `json:"answer"`
		Quote  string `json:"quote"`
	}
)

const mapEntries = 3 // in each list

// chart adds a map to a synthesis, if the prompt asks for one.
func (m *model) chart(text string, q *request) string {
	if q.task.Map == "" || m.Maps.Form == MapNone {
		return text
	}
	written := string(encode(m.mapOf(q)))
	switch m.Maps.Form {
	case MapUnmarked:
		return text + "\n\n" + written
	case MapCut:
		written = written[:len(written)/2]
	case MapProse:
		written = "The answers mostly agree."
	default: // the map stays whole
	}
	return text + "\n\n" + q.task.Map + "\n" + written
}

// mapOf returns a map that quotes the facts and the points of the answers, or the map that belongs to a written synthesis.
func (m *model) mapOf(q *request) mapTail {
	if _, tail, ok := m.writtenSynthesis(q.task); ok {
		return tail
	}
	tail := mapTail{
		Agreed: []mapClaim{}, Disputed: []mapDispute{}, OnlyOneSaid: []mapClaim{},
		Open: []string{"Which part of " + m.phrases.keyWords(q.task.Question)[0] + " matters most to you?"},
	}
	random := m.draws("map", q.key)
	var names []string
	sides := map[string][]mapClaim{} // the values of each fact
	var points []mapClaim
	at := map[string]int{} // where a point is in points
	for _, a := range q.task.Answers {
		for line := range strings.Lines(a.Text) {
			quote := mapQuote{a.Label, strings.TrimSpace(line)}
			if f, ok := factOf(line); ok {
				if sides[f.Name] == nil {
					names = append(names, f.Name)
				}
				same := func(c mapClaim) bool { return c.Claim == f.Value }
				if i := slices.IndexFunc(sides[f.Name], same); i >= 0 {
					sides[f.Name][i].Quotes = append(sides[f.Name][i].Quotes, quote)
				} else {
					sides[f.Name] = append(sides[f.Name], mapClaim{f.Value, []mapQuote{quote}})
				}
			} else if point, _, ok := m.phrases.point(line); ok {
				quote.Quote = point
				if i, known := at[point]; known {
					points[i].Quotes = append(points[i].Quotes, quote)
				} else {
					at[point] = len(points)
					points = append(points, mapClaim{point, []mapQuote{quote}})
				}
			}
		}
	}
	for _, name := range names {
		if values := sides[name]; len(values) == 1 {
			points = slices.Insert(points, 0, mapClaim{name + " is " + values[0].Claim, values[0].Quotes})
		} else if random.Float64() >= m.Maps.Miss {
			tail.Disputed = append(tail.Disputed, mapDispute{"What is the value of " + name + "?", values})
		}
	}
	slices.SortStableFunc(points, func(a, b mapClaim) int { return cmp.Compare(len(b.Quotes), len(a.Quotes)) })
	for _, claim := range points {
		if len(claim.Quotes) > 1 {
			tail.Agreed = append(tail.Agreed, claim)
		} else {
			tail.OnlyOneSaid = append(tail.OnlyOneSaid, claim)
		}
	}
	tail.Agreed = tail.Agreed[:min(len(tail.Agreed), mapEntries)]
	tail.OnlyOneSaid = tail.OnlyOneSaid[:min(len(tail.OnlyOneSaid), mapEntries)]
	number := 0
	invent := func(claims []mapClaim) {
		for _, claim := range claims {
			for i := range claim.Quotes {
				if number++; random.Float64() < m.Maps.Invent {
					claim.Quotes[i].Quote = fmt.Sprintf("Simulated quote number %d that stands in no answer.", number)
				}
			}
		}
	}
	invent(tail.Agreed)
	invent(tail.OnlyOneSaid)
	for _, dispute := range tail.Disputed {
		invent(dispute.Sides)
	}
	return tail
}
