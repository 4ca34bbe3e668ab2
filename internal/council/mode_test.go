package council_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/councild/councild/internal/council"
)

func TestModeCheck(t *testing.T) {
	form := &council.AnswerForm{Type: council.FormNumber}
	for _, c := range []struct {
		mode           council.Mode
		members, first int
		form           *council.AnswerForm
		fields         string // of the problems
	}{
		{council.ModeCouncil, 2, 0, nil, ""},
		{council.ModeCouncil, 3, 2, nil, ""},
		{council.ModeRanked, 3, 1, form, ""},
		{council.ModeSynthesis, 0, 9, nil, ""}, // The number of members is not known.
		{council.ModeVote, 2, 0, form, ""},
		{council.ModeSingle, 1, 0, nil, ""},
		{"judge", 1, 5, nil, "mode"},
		{"", 2, 0, nil, "mode"},
		{council.ModeCouncil, 1, 1, nil, "members"},
		{council.ModeVote, 1, 0, nil, "members answer_form"},
		{council.ModeSingle, 2, 0, nil, "members"},
		{council.ModeSingle, 1, 1, nil, "first"},
		{council.ModeVote, 3, 1, form, "first"},
		{council.ModeCouncil, 2, 2, nil, "first"},
		{council.ModeCouncil, 0, -1, nil, "first"},
	} {
		problems := c.mode.Check(c.members, c.first, c.form)
		fields := make([]string, len(problems))
		for i, p := range problems {
			fields[i] = p.Field
		}
		if strings.Join(fields, " ") != c.fields || slices.ContainsFunc(problems, func(p council.FieldError) bool { return p.Message == "" || p.Fix == "" }) {
			t.Errorf("%+v: %+v", c, problems)
		}
	}
}
