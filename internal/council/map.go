package council

// Map says where the answers of a session agree and where they do not. The chairman writes it, and the daemon checks
// its quotes. Every quote stands word for word in the answer of its member. No check shows that two quotes contradict
// each other: that is how the chairman reads them.
//
// A list has at most five entries. If Reason is set, there is no map, and all lists are null.
type Map struct {
	// Agreed has claims with quotes from the answers of two or more models.
	Agreed   []Claim   `json:"agreed"`
	Disputed []Dispute `json:"disputed"`
	// OnlyOneSaid has claims with a quote that stands in one answer only.
	OnlyOneSaid []Claim `json:"only_one_said"`
	// Open has questions that the answers leave open. They have no quotes, so nothing in them was checked.
	Open []string `json:"open"`
	// Dropped counts the quotes of the chairman that are not in the map, because the quote or its entry failed a check.
	Dropped int `json:"dropped"`
	// Reason says why there is no map. It is null if there is one.
	Reason *MapReason `json:"reason"`
}

// Claim is what some answers say, in the words of the chairman, with quotes from these answers.
type Claim struct {
	Claim  string  `json:"claim"`
	Quotes []Quote `json:"quotes"`
}

// Quote is a part of a member's answer.
type Quote struct {
	Model string `json:"model"` // the member's id
	Quote string `json:"quote"`
}

// Dispute is a question to which the answers give different answers. It has two sides or more.
type Dispute struct {
	About string  `json:"about"`
	Sides []Claim `json:"sides"`
}

// MapReason says why a session that asked for a map has none.
type MapReason string

// The values of MapReason.
const (
	MapNone           MapReason = "no_map"          // no chairman wrote the answer, or the chairman wrote no map
	MapNotJSON        MapReason = "not_json"        // the text of the map is not JSON
	MapCutOff         MapReason = "cut_off"         // the reply ended in the middle of the map
	MapSchema         MapReason = "schema"          // the JSON does not have the form that the prompt asks for
	MapQuotesInvented MapReason = "quotes_invented" // more than half of the quotes stand in no answer
)
