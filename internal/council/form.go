package council

// AnswerForm says in which form members answer, so that answers can be compared. It is a grader without a right answer.
type AnswerForm struct {
	Type    string   `json:"type" yaml:"type"`                // FormExact, FormNormalised, FormChoice, FormNumber or FormJSON
	Options []string `json:"options,omitzero" yaml:"options"` // only for FormChoice
}

// The types of AnswerForm. FormJSON reads the whole text if it is JSON, and otherwise the last JSON object or array in
// the text. The other types read the last line that begins with "ANSWER:". The word may be in upper or lower case, and
// in any markup. If there is no such line, FormChoice and FormNumber also take a text of one line that is only the
// answer.
const (
	// FormExact compares the characters of answers.
	FormExact = "exact"
	// FormNormalised ignores case, white space, outer quotes and markup, and a full stop at the end.
	FormNormalised = "normalised"
	// FormChoice reads which one of the options an answer begins with.
	FormChoice = "choice"
	// FormNumber compares the values of numbers.
	FormNumber = "number"
	// FormJSON compares JSON values. It ignores the order of keys, and compares numbers by value.
	FormJSON = "json"
)
