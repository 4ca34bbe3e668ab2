package anonymize

import (
	"slices"
	"strings"

	"github.com/councild/councild/internal/council"
)

// labelPrefix stands before the letters of every label.
const labelPrefix = "Response "

// LabelAt returns the label of position i, i >= 0. Labels are "Response A" to "Response Z", then "Response AA",
// "Response AB" and so on.
func LabelAt(i int) council.Label {
	letters := ""
	for i++; i > 0; i = (i - 1) / 26 {
		letters = string(rune('A'+(i-1)%26)) + letters
	}
	return council.Label(labelPrefix + letters)
}

// ShortLabel returns the letters of a label: "A" for "Response A".
func ShortLabel(label council.Label) string { return strings.TrimPrefix(string(label), labelPrefix) }

// Options say for which members slates are drawn. An empty Order stands for council.OrderBalanced.
type Options struct {
	Seed      int64
	Order     council.Order
	Authors   []string // ids of the members that answered, in configured order, each once
	Reviewers []string // ids of the reviewers, each once; they may be authors
	// Twins are seats of one model. Their answers count as each other's own.
	Twins   council.Twins
	ShowOwn bool // reviewers also see their own answers
}

// Slates holds the slates of one session.
type Slates struct {
	Canonical council.Slate   // all answers, under the labels that the session uses
	Reviewer  []council.Slate // slate i is what Reviewers[i] is shown
}

// Draw draws the canonical slate and one slate for each reviewer (ADR-017). The canonical slate is a shuffle of all
// answers. A reviewer's slate holds all answers except its own, or with ShowOwn all answers. It is empty if there
// is no other answer.
//
// With council.OrderShared all slates follow the canonical order. With council.OrderPerReviewer each is an independent
// shuffle, from the session's seed and the reviewer's id. With council.OrderBalanced the slates together show every
// answer in every position about equally often:
//
//   - A reviewer that does not see its own answer gets that answer's row of a design. If all authors review, every
//     candidate takes every position of the design exactly once. With at most 28 answers, and with any even number,
//     no candidate comes directly after the same other one twice.
//   - Any other reviewer takes a row of a Williams design over all answers. These reviewers take, in random order,
//     one row after another from a random start. So any two positions show a candidate equally often, or one of them
//     shows it once more than the other. The row does not depend on the reviewer's own answer. If it did, the design
//     would show each author its own answer in the same position, and self-preference could not be told from
//     position.
//
// If own answers are hidden, a reviewer with twins takes the row of its own answer, or of the first of its twins'
// answers by name. All of these answers are left out of the row. Its slate is then shorter, and answers are shown in
// each position equally often only over many sessions.
func Draw(o Options) Slates {
	n := len(o.Authors)
	canonical := pick(o.Authors, newStream(o.Seed, "canonical", "").permutation(n))
	var orders [][]string
	switch o.Order {
	case council.OrderShared:
		orders = slices.Repeat([][]string{canonical}, len(o.Reviewers))
	case council.OrderPerReviewer:
		for _, reviewer := range o.Reviewers {
			orders = append(orders, pick(o.Authors, newStream(o.Seed, "reviewer", reviewer).permutation(n)))
		}
	default:
		orders = balanced(o)
	}
	labels := make([]council.Label, n)
	for i := range labels {
		labels[i] = LabelAt(i)
	}
	slates := Slates{Canonical: slate(canonical, labels), Reviewer: make([]council.Slate, len(o.Reviewers))}
	for i, reviewer := range o.Reviewers {
		order := slices.Clone(orders[i])
		if !o.ShowOwn {
			order = slices.DeleteFunc(order, func(author string) bool { return o.Twins.Own(reviewer, author) })
		}
		slates.Reviewer[i] = slate(order, labels)
	}
	return slates
}

// slate labels the answers in their order.
func slate(authors []string, labels []council.Label) council.Slate {
	s := make(council.Slate, len(authors))
	for i, author := range authors {
		s[i] = council.Shown{Label: labels[i], Member: author}
	}
	return s
}

func pick(authors []string, order []int) []string {
	picked := make([]string, len(order))
	for i, a := range order {
		picked[i] = authors[a]
	}
	return picked
}
