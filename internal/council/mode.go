package council

import (
	"fmt"
	"slices"
	"strings"
)

// Mode says which stages a session runs, and whose text is its answer.
type Mode string

// The modes.
const (
	ModeCouncil   Mode = "council"   // All stages run. The answer is the text of the chairman.
	ModeRanked    Mode = "ranked"    // No synthesis. The answer is the first by rank, word for word.
	ModeSynthesis Mode = "synthesis" // No reviews. The answer is the text of the chairman.
	ModeVote      Mode = "vote"      // Only the members are asked. Their most frequent answer is the answer.
	ModeSingle    Mode = "single"    // Only one member is asked.
	// ModeJudge only reviews answers that are given. It has a ranking, and no answer. No council has this mode.
	ModeJudge Mode = "judge"
	// ModeTask carries out a Task. The session has the task's result and no answer. A council cannot have this mode.
	ModeTask Mode = "task"
)

// ModeChoices names the modes in messages.
const ModeChoices = "council, ranked, synthesis, vote or single"

// Modes returns the modes of a council.
func Modes() []Mode { return []Mode{ModeCouncil, ModeRanked, ModeSynthesis, ModeVote, ModeSingle} }

// Known reports whether m is a mode of a council.
func (m Mode) Known() bool { return slices.Contains(Modes(), m) }

// Reviews reports whether members review the answers in this mode.
func (m Mode) Reviews() bool { return m == ModeCouncil || m == ModeRanked || m == ModeJudge }

// Writes reports whether a chairman writes the answer in this mode.
func (m Mode) Writes() bool { return m == ModeCouncil || m == ModeSynthesis }

// Check returns what is wrong with a configured council of mode m. A message follows the name of its field, as in "first
// is 3, which is out of range". The number of members is 0 if it is not known. First and form are those of a Plan.
func (m Mode) Check(members, first int, form *AnswerForm) []FieldError {
	var problems []FieldError
	add := func(field, message, fix string) {
		problems = append(problems, FieldError{Field: field, Message: message, Fix: fix})
	}
	switch {
	case m == "judge":
		add("mode", "is judge, but judging answers that exist already is not a mode of a council", "use "+ModeChoices)
		return problems
	case !m.Known():
		add("mode", fmt.Sprintf("is %.64q, which is not a mode of a council", m), "use "+ModeChoices)
		return problems
	case m == ModeSingle && members > 1:
		add("members", fmt.Sprintf("names %d models, and the mode single asks one", members),
			"list one, or use another mode")
	case m != ModeSingle && members == 1:
		add("members", "names one model", "list two or more (the same model may be listed twice), or use the mode single")
	}
	if m == ModeVote && form == nil {
		add("answer_form", "is missing, and the mode vote counts equal answers",
			"add it, such as {type: number}, or use another mode")
	}
	switch {
	case first == 0:
	case m == ModeSingle || m == ModeVote:
		add("first", fmt.Sprintf("is %d, which does not go with the mode %s", first, m), "remove it, or use another mode")
	case first < 0 || members > 1 && first >= members:
		add("first", fmt.Sprintf("is %d, which is out of range", first),
			"use 1 or more, but less than the number of members, or remove it to ask all members at once")
	}
	return problems
}

// AnswerRule says how a session came to its answer.
type AnswerRule string

// The rules.
const (
	RuleWritten   AnswerRule = "written"   // a chairman wrote the answer
	RuleTop       AnswerRule = "top"       // the first answer by rank
	RuleCommonest AnswerRule = "commonest" // the most frequent answer of the members
	RuleOnly      AnswerRule = "only"      // the answer of the only member
	// RuleFirst takes the answer of the first member that answered. It applies if the members that began decided the
	// session, or if there is no ranking.
	RuleFirst AnswerRule = "first"
	RuleNone  AnswerRule = "none" // there is no answer
)

// AnswerFrom says where the answer of a session comes from.
type AnswerFrom struct {
	Rule AnswerRule `json:"rule"`
	// Model is the id of the member whose text is the answer, or of the chairman that wrote the answer. It is "" with
	// RuleNone.
	Model string `json:"model"`
	// Tied has the members whose answers the rule could have taken as well. The seed draws one of the tied answers.
	// With RuleCommonest, Tied has one member for each other answer that is equally frequent.
	Tied []string `json:"tied"`
	// Votes is how many members gave the answer, with RuleCommonest. It is 0 with other rules.
	Votes int `json:"votes,omitempty"`
}

// Sentence says in words whose text the answer is, to follow "the answer is". It returns "" if there is no answer.
func (f AnswerFrom) Sentence() string {
	gave := ""
	switch {
	case f.Votes == 1:
		gave = ", which 1 member gave"
	case f.Votes > 1:
		gave = fmt.Sprintf(", which %d members gave", f.Votes)
	}
	text := map[AnswerRule]string{
		RuleWritten:   "the synthesis of " + f.Model,
		RuleTop:       "that of " + f.Model + ", which was ranked first",
		RuleCommonest: "the most frequent one" + gave + ", in the words of " + f.Model,
		RuleOnly:      "that of " + f.Model,
		RuleFirst:     "that of " + f.Model,
	}[f.Rule]
	if len(f.Tied) > 0 {
		text += "; it tied with those of " + strings.Join(f.Tied, ", ") + ", and the seed drew it"
	}
	return text
}

// FirstReason says why the members besides the first ones were asked or not asked.
type FirstReason string

// The values of FirstReason.
const (
	FirstSame       FirstReason = "same_answer" // The first members gave the same answer.
	FirstDifferent  FirstReason = "different"   // The first members gave different answers.
	FirstUnreadable FirstReason = "unreadable"  // An answer does not have the form that was asked for.
	FirstNoForm     FirstReason = "no_form"     // The request has no form, so all members were asked at once.
	FirstFailed     FirstReason = "failed"      // One of the first members did not answer.
	FirstAlone      FirstReason = "asked_alone" // Only one member was to begin, and it answered.
	FirstOnDemand   FirstReason = "on_demand"   // A caller asked for the whole council afterwards.
)

// FirstAsked says what the members that began decided. It is the data of EventFirst.
type FirstAsked struct {
	Asked []string `json:"asked"` // the ids of the members that began
	// Same says whether they gave the same answer. It is null if their answers were not compared.
	Same     *bool       `json:"same"`
	Convened bool        `json:"convened"` // true if the whole council was asked
	Why      FirstReason `json:"why"`
}

// Sentence says in words what the members that began decided. The argument members is how many members the council has,
// or 0 if that is not known.
func (f FirstAsked) Sentence(members int) string {
	asked := strings.Join(f.Asked, " and ")
	verb := "was"
	if len(f.Asked) > 1 {
		verb = "were"
	}
	only := fmt.Sprintf("only %s %s asked", asked, verb)
	if members > 0 {
		only = fmt.Sprintf("%d of %d members %s asked", len(f.Asked), members, verb)
	}
	switch f.Why {
	case FirstSame:
		return only + ": they gave the same answer, which is no proof"
	case FirstAlone:
		return only + ", so no other member has seen the question"
	case FirstDifferent:
		return asked + " began and gave different answers, so all members were asked"
	case FirstUnreadable:
		return asked + " began, and not all of their answers have the form that was asked for, so all members were asked"
	case FirstFailed:
		return asked + " began, and not all of them answered, so all members were asked"
	case FirstNoForm:
		return "all members were asked at once, because answers without a form cannot be compared"
	case FirstOnDemand:
		return asked + " had answered before, and the other members were asked afterwards"
	default:
		return ""
	}
}
