package bias

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/stat"
)

// Question is a question that the report answers, with the names of the figures behind the answer.
type Question struct {
	ID       string `json:"id"`
	Question string `json:"question"`
	// Verdict is the worst verdict on the figures. It is null if the figures are described and not tested.
	Verdict *Verdict `json:"verdict"`
	Word    string   `json:"verdict_text"` // says Verdict in the words of this question
	// Sentence is about the figure with this verdict. Also has a sentence for each other figure that says something.
	Sentence string   `json:"sentence"`
	Also     []string `json:"also"`
	ToDo     string   `json:"what_to_do"` // "" if there is nothing to do
	Figures  []string `json:"figures"`    // names of metrics
	// MoreSessions is about how many more sessions would answer the question if there is no effect. It is null if the
	// question is answered, and if this cannot be computed.
	MoreSessions *int `json:"more_sessions"`
}

// Summary is what a reader should know first.
type Summary struct {
	Window  string   `json:"window"`  // says which sessions the report is about
	Council string   `json:"council"` // says who the members are
	Members []string `json:"members"` // ids of reviewers and candidates, sorted

	Sessions  int `json:"sessions"`
	Questions int `json:"questions"` // questions that the sessions asked, each counted once

	Result   string   `json:"result"`   // says whether a favour was found
	Findings []string `json:"findings"` // the worst findings, at most three, favours first
	Brackets string   `json:"brackets"` // explains the numbers in brackets; "" without figures
	// CouldFind says which effects would have been found: those that all reviewers share, and those of one reviewer.
	CouldFind []string `json:"could_find"`
	// MoreSessions is the largest of the questions' numbers, and More says it in a sentence. They are null and "" if no
	// question has a number.
	MoreSessions *int   `json:"more_sessions"`
	More         string `json:"more"`
}

// NoSessions is what a report says if it has no sessions and no filter left records out.
const NoSessions = "No sessions in this window: ask some questions, or choose a longer window."

const (
	mostFindings = 3
	mostAlso     = 5
	agreeName    = "agreement"
)

// questionForm is how a question is put, and what it is answered from. The figures are in the order in which they are mentioned.
type questionForm struct {
	id, question, about string
	figures             []string
	found, none         string // the words for an effect, and for none
}

func questionForms() []questionForm {
	const favour = "favour found"
	const noFavour = "no favour of this size"
	return []questionForm{
		{
			"place", "Does the place of an answer matter?", "place",
			[]string{positionName, "position_under_shared_order"},
			favour, noFavour,
		},
		{
			"length", "Do longer answers score better, and does anyone reward length more than the others?", "length",
			[]string{lengthAssociation, slopesName, reasoningName},
			favour, noFavour,
		},
		{
			"favour", "Does anyone favour its own answers, its family's, another model's, or its own style?", "favour",
			[]string{selfName, familyName, affinityName, styleName},
			favour, noFavour,
		},
		{
			"level", "Is anyone harsher or milder, and does it change results?", "level",
			[]string{harshnessName},
			"differs", "no difference of this size",
		},
		{
			"first_answer", "Do reviewers judge independently of the first answer they see?", "the first answer",
			[]string{anchoringName},
			"effect found", "no effect of this size",
		},
		{
			"agreement", "Do reviewers agree with each other, and with themselves?", "agreement",
			[]string{agreeName},
			"", "",
		},
		{
			"change", "Has anything changed?", "change",
			[]string{driftName},
			"changed", "no change of this size",
		},
	}
}

// questions answers the questions from the metrics, the change points and the versions of a report.
func (c *Collector) questions(r *Report) []Question {
	var all []Question
	for _, a := range questionForms() {
		var figures []*Metric
		for _, name := range a.figures {
			i := slices.IndexFunc(r.Metrics, func(m Metric) bool { return m.Name == name })
			if i >= 0 && (name != reasoningName || r.Metrics[i].wasTested()) {
				figures = append(figures, &r.Metrics[i])
			}
		}
		if len(figures) > 0 {
			all = append(all, c.answer(a, figures, r))
		}
	}
	return all
}

// answer answers one question.
func (c *Collector) answer(a questionForm, figures []*Metric, r *Report) Question {
	q := Question{ID: a.id, Question: a.question, Also: []string{}}
	for _, m := range figures {
		q.Figures = append(q.Figures, m.Name)
	}
	worst := slices.MinFunc(figures, compareFindings)
	if i := slices.IndexFunc(figures, (*Metric).described); a.id == "agreement" && i >= 0 {
		worst = figures[i]
	}
	q.Verdict = worst.Verdict
	q.Word = a.word(worst)
	q.Sentence = worst.said()
	if a.id == "level" && !worst.Found() {
		q.Sentence += " Ranks do not depend on levels."
	}
	q.Also = append(q.Also, worst.others()...)
	for _, m := range figures {
		if m != worst && (m.Kind != KindDescription || m.described()) {
			q.Also = append(q.Also, m.said())
		}
	}
	switch a.id {
	case "first_answer":
		if worst.Is(VerdictInconclusive) && worst.Reason != shrinks {
			q.Also = append(q.Also, ended(capital(neverRuledOut)))
		}
	case "favour":
		if !slices.Contains(q.Figures, styleName) {
			q.Also = append(q.Also, "Favour for a reviewer's own style is not measured.")
		}
	case "agreement":
		q.Also = append(q.Also, contradictions(r.Pairs)...)
	case "change":
		q.changes(r)
	}
	q.Also = slices.DeleteFunc(q.Also, func(text string) bool { return text == "" || text == q.Sentence })
	if isOpen(q.Verdict) {
		q.MoreSessions = moreSessions(figures, c.o.MinSessions, r.Window.Sessions)
	}
	q.ToDo = c.toDo(a.id, &q, worst, r)
	if self := figures[0]; self.Name == selfName && self.Is(VerdictNotIdentified) {
		q.ToDo = strings.TrimSpace(q.ToDo + " To measure this for own answers, raise " + c.o.Settings.Of(council.SettingSelfReviewRate) + ".")
	}
	return q
}

// described reports whether a metric has a figure that is described and not tested.
func (m *Metric) described() bool { return m.Verdict == nil && m.PointEstimate != nil }

// compareFindings orders metrics by how bad their verdicts are, and findings of one kind by their size.
func compareFindings(a, b *Metric) int {
	return cmp.Or(a.severity()-b.severity(), cmp.Compare(b.relative(), a.relative()))
}

// severity is less for a worse verdict. A verdict that leaves an effect open is worse than none of a size that counts.
func (m *Metric) severity() int {
	switch {
	case m.Verdict == nil:
		return 7
	case m.Is(VerdictFavour):
		return 0
	case m.Is(VerdictChanged):
		return 1
	case m.Is(VerdictDiffers):
		return 2
	case m.Found():
		return 3
	case m.Is(VerdictInconclusive), m.Is(VerdictInsufficient):
		return 4
	case m.Is(VerdictNotIdentified):
		return 5
	}
	return 6
}

// relative returns the size of an effect that was found, in multiples of the least that counts. Otherwise it is 0.
func (m *Metric) relative() float64 {
	if !m.Found() || m.Delta == nil || *m.Delta == 0 {
		return 0
	}
	return math.Abs(*m.PointEstimate / *m.Delta)
}

func isOpen(v *Verdict) bool {
	return v != nil && (*v == VerdictInconclusive || *v == VerdictInsufficient)
}

// word returns the verdict on a metric in the words of a question.
func (a questionForm) word(m *Metric) string {
	switch {
	case m.Verdict == nil:
		return "described, not tested"
	case m.Is(VerdictAssociation):
		return "association, no favour"
	case m.Found():
		return a.found
	case m.Is(VerdictNotIdentified), m.Is(VerdictInconclusive) && m.Name == anchoringName: // it never rules an effect out
		return "cannot be told"
	case isOpen(m.Verdict):
		return "too little data"
	}
	return a.none
}

// said returns the sentence of a metric. Agreement is not tested, and gets a sentence too.
func (m *Metric) said() string {
	if m.Name != agreeName || m.PointEstimate == nil {
		return m.Sentence
	}
	within := ""
	if m.CILower != nil && m.CIUpper != nil {
		within = fmt.Sprintf(" (%.2f to %.2f)", *m.CILower, *m.CIUpper)
	}
	return fmt.Sprintf("Agreement between the reviewers of a session is %.2f%s: 1 means the same order of the answers, 0 means no agreement.",
		*m.PointEstimate, within)
}

// others returns a sentence for each member that was found and is not the one that the headline shows.
func (m *Metric) others() []string {
	var all []*Metric
	for _, member := range pointers(m.Members) {
		if member.Found() && member.Subject != m.Subject {
			all = append(all, member)
		}
	}
	slices.SortStableFunc(all, compareFindings)
	var said []string
	for i, member := range all {
		if i == mostAlso {
			return append(said, fmt.Sprintf("The table shows %d more.", len(all)-mostAlso))
		}
		said = append(said, member.Sentence)
	}
	return said
}

// contradictions says how often reviewers changed their mind when the order of two answers was turned.
func contradictions(pairs []PairJudge) []string {
	var said []string
	for _, p := range pairs {
		if p.Comparisons > 0 && p.ConflictRate.Value != nil {
			said = append(said, fmt.Sprintf("%s contradicts itself in %.0f %% of %d pairs of answers that it saw in both orders.",
				p.ReviewerID, 100**p.ConflictRate.Value, p.Comparisons))
		}
	}
	return said
}

// changes adds what changed besides the trend: change points and versions of models.
func (q *Question) changes(r *Report) {
	found := false
	var points []string
	for i := range r.ChangePoints {
		if r.ChangePoints[i].Found() {
			points = append(points, r.ChangePoints[i].Sentence)
		}
	}
	if len(points) > 0 && (q.Verdict == nil || *q.Verdict != VerdictChanged) {
		points = append(points, q.Sentence)
		q.Verdict = new(VerdictChanged)
		q.Word = "changed"
		q.Sentence = points[0]
		found = true
	}
	if found {
		points = points[1:]
	}
	q.Also = append(q.Also, points...)
	for i, v := range r.Versions {
		if i == mostAlso {
			q.Also = append(q.Also, fmt.Sprintf("Versions of models changed %d more times.", len(r.Versions)-mostAlso))
			break
		}
		q.Also = append(q.Also, v.String()+".")
	}
}

// toDo says what the reader can do about an answer.
func (c *Collector) toDo(id string, q *Question, m *Metric, r *Report) string {
	const balanced = "Keep the order “balanced”: it shows every answer at each place about equally often, so that no answer gains."
	who, _, _ := strings.Cut(m.Subject, ">")
	switch {
	case m.Is(VerdictFavour):
		switch m.Name {
		case positionName:
			if m.Subject != "" && m.SubjectName() == m.Subject {
				return balanced + " If you can, replace " + who + " as a reviewer."
			}
			return balanced
		case anchoringName:
			return balanced
		case slopesName:
			return "Replace " + who + " as a reviewer, or ask for answers of the same length."
		case selfName:
			return "Rankings are not affected, because votes for own answers do not count. Do not let a model alone judge its own work."
		case familyName:
			return "Add members of other families. Until then, look at the ranking without the reviews inside the family."
		case affinityName:
			return "Look at the leaderboard without the reviews of " + who + ". If it differs, replace " + who + "."
		}
		return "Compare the ranking with what people prefer before you rely on it."
	case q.Verdict != nil && *q.Verdict == VerdictChanged:
		return "Make one report for the days before the change and another one for the days after it."
	case m.Is(VerdictDiffers):
		return "Compare places, or the calibrated scores under “All figures”. Do not compare raw scores of different reviewers."
	case m.Is(VerdictAssociation):
		return "Check whether people prefer the longer answers too. If they do not, ask for answers of the same length."
	case q.MoreSessions != nil:
		return fmt.Sprintf("Record more sessions. If there is no effect, about %s more will rule one out.%s",
			thousands(*q.MoreSessions), r.Window.wider())
	case m.Is(VerdictNotIdentified) && (m.Reason == sharedOrder || m.Reason == noPositions):
		return "Ask with the order “balanced”, so that each reviewer sees its own order."
	case id == "agreement" && len(r.Pairs) == 0:
		return "To see how well each reviewer agrees with itself, run councild probe."
	}
	return ""
}

// wider says that the limit on the number of sessions keeps sessions out. It is "" if it does not.
func (w Window) wider() string {
	if w.Newest == 0 || w.Sessions < w.Newest {
		return ""
	}
	return fmt.Sprintf(" The report uses only the newest %d sessions, so raise that number too.", w.Newest)
}

// moreSessions returns about how many more sessions would answer what the figures leave open, or nil if this cannot be
// computed for one of them.
func moreSessions(figures []*Metric, least, sessions int) *int {
	most := 0
	for _, m := range figures {
		if !isOpen(m.Verdict) {
			continue
		}
		more := m.moreSessions(least, sessions)
		if more == 0 {
			return nil
		}
		most = max(most, more)
	}
	if most == 0 {
		return nil
	}
	return &most
}

// moreSessions returns how many more sessions would show, with a probability of 80 %, that there is no effect that
// counts. It assumes that there is none, and that standard errors shrink with the square root of the number of sessions.
// It returns 0 if this cannot be computed, and if it would be more than a hundred times the sessions of the window.
func (m *Metric) moreSessions(least, sessions int) int {
	figures := pointers(m.Members)
	if len(figures) == 0 {
		figures = []*Metric{m}
	}
	if m.Name == anchoringName || m.Delta == nil || m.Clusters == 0 {
		return 0
	}
	// The estimates of all members must lie within the margin at once.
	each := math.Pow(0.8, 1/float64(len(figures)))
	width := stat.NormalQuantile(0.95) + stat.NormalQuantile((1+each)/2)
	factor := float64(least) / float64(m.Clusters)
	for _, one := range figures {
		if one.StandardError == nil {
			return 0
		}
		errors := *one.StandardError * width / *m.Delta
		factor = max(factor, errors*errors)
	}
	more := (factor - 1) * float64(sessions)
	if more < 1 || more > 100*float64(sessions) {
		return 0
	}
	digits := math.Pow(10, max(0, math.Floor(math.Log10(more))-1)) // an estimate has no more than two digits
	return int(math.Ceil(more/digits) * digits)
}

// brief returns the summary of a report whose other parts are complete.
func (c *Collector) brief(w *window, r *Report, found summary) Summary {
	s := Summary{
		Sessions: len(w.sessions), Questions: w.clusters, Members: []string{}, Findings: []string{}, CouldFind: []string{},
		Result: found.result, Window: r.Window.says(w.clusters),
	}
	for _, effect := range found.could {
		s.CouldFind = append(s.CouldFind, capital(effect)+" would have been found with a probability of 80 %.")
	}
	versions := map[string]bool{}
	took := make([]bool, len(w.names))
	for i := range w.sessions {
		x := &w.sessions[i]
		for _, member := range slices.Concat(x.reviewers, x.candidates) {
			took[member] = true
		}
		if x.config != "" {
			versions[x.config] = true
		}
	}
	for i, name := range w.names {
		if took[i] {
			s.Members = append(s.Members, name)
		}
	}
	if len(s.Members) > 0 {
		s.Council = "Council: " + strings.Join(s.Members, ", ")
		if len(versions) > 1 {
			s.Council += fmt.Sprintf("; %d versions of its settings", len(versions))
		}
		s.Council += "."
	}
	isLeftOut := slices.ContainsFunc(r.Filters, func(f Filter) bool { return f.LeftOut > 0 })
	if r.Window.Start == nil && !isLeftOut {
		s.Window = NoSessions
	}
	if r.SessionsNeeded > 0 {
		s.Result = r.Headline + "."
		s.MoreSessions = &r.SessionsNeeded
		s.More = fmt.Sprintf("%s needed. Any figure before that would be chance.", counted(r.SessionsNeeded, "more session"))
		return s
	}
	s.findings(r)
	s.Brackets = "Points are on the scale from 1 to 10. The numbers in brackets are 95 % intervals: one in 20 of them misses the true size."
	var about []string
	for i, q := range r.Questions {
		if q.MoreSessions == nil {
			continue
		}
		if s.MoreSessions == nil || *q.MoreSessions > *s.MoreSessions {
			s.MoreSessions = r.Questions[i].MoreSessions
		}
		for _, a := range questionForms() {
			if a.id == q.ID {
				about = append(about, a.about)
			}
		}
	}
	if s.MoreSessions != nil {
		s.More = fmt.Sprintf("Too little data about %s. If there is no effect, about %s more sessions will rule one out.",
			listed(about), thousands(*s.MoreSessions))
	}
	return s
}

// findings fills in the worst findings.
func (s *Summary) findings(r *Report) {
	all := slices.DeleteFunc(pointers(r.Metrics), func(m *Metric) bool { return !m.Found() })
	slices.SortStableFunc(all, compareFindings)
	for _, m := range all {
		s.Findings = append(s.Findings, m.Sentence)
	}
	// A change point is worse than a level or an association, which only describe.
	at := len(slices.DeleteFunc(slices.Clone(all), func(m *Metric) bool { return m.severity() > 1 }))
	for i := range r.ChangePoints {
		if r.ChangePoints[i].Found() {
			s.Findings = slices.Insert(s.Findings, at, r.ChangePoints[i].Sentence)
			at++
		}
	}
	s.Findings = s.Findings[:min(mostFindings, len(s.Findings))]
}

// says describes a window in a sentence.
func (w Window) says(questions int) string {
	if w.Start == nil {
		return "No sessions in this window."
	}
	from := w.Start.UTC().Format(time.DateOnly)
	days := "on " + from
	if to := w.End.UTC().Format(time.DateOnly); to != from {
		days = "from " + from + " to " + to
	}
	text := fmt.Sprintf("%s asked %s, %s.", counted(w.Sessions, "session"), counted(questions, "question"), days)
	switch {
	case w.Newest > 0 && w.Days > 0:
		text += fmt.Sprintf(" The window is the newest %d sessions of the last %d days.", w.Newest, w.Days)
	case w.Newest > 0:
		text += fmt.Sprintf(" The window is the newest %d sessions.", w.Newest)
	case w.Days > 0:
		text += fmt.Sprintf(" The window is the last %d days.", w.Days)
	}
	return text
}

// counted returns a number with the name of what it counts, such as "1 session".
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return thousands(n) + " " + thing + "s"
}

// thousands writes a number from 0 to 999,999 with a comma.
func thousands(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%d,%03d", n/1000, n%1000)
}

// listed joins names as "a, b and c".
func listed(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}
