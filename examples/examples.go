// Package examples holds questions with known right answers, in the form that councild reads. Its
// tests show that the answers are right.
package examples

import _ "embed"

//go:embed questions.jsonl
var questions []byte

// Questions returns 60 closed questions, one JSON object a line, ten of each category. The labels
// sim_right and sim_wrong say what simulated models answer where the reference does not tell it.
// The caller must not change them.
func Questions() []byte { return questions }
