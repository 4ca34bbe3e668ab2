package httpapi

import (
	"bytes"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/councild/councild/internal/council"
)

// biasReport is GET /v1/bias-report.
func (a *API) biasReport(w http.ResponseWriter, r *http.Request) error {
	p := newParameters(r, "sessions", "days", "format")
	query := ReportQuery{Sessions: p.count("sessions"), Days: p.count("days")}
	text := p.text()
	if err := p.err(); err != nil {
		return err
	}
	report, err := a.o.Daemon.Report(r.Context(), query)
	if err != nil {
		return err
	}
	if !text {
		return writeJSON(w, http.StatusOK, report)
	}
	return writeText(w, func(w io.Writer) error { return report.WriteText(w, true) })
}

// leaderboard is GET /v1/leaderboard.
func (a *API) leaderboard(w http.ResponseWriter, r *http.Request) error {
	p := newParameters(r, "sessions", "days", "category", "format")
	query := LeaderboardQuery{Sessions: p.count("sessions"), Days: p.count("days"), Category: p.category("category")}
	text := p.text()
	if err := p.err(); err != nil {
		return err
	}
	board, err := a.o.Daemon.Leaderboard(r.Context(), query)
	if err != nil {
		return err
	}
	if !text {
		return writeJSON(w, http.StatusOK, board)
	}
	return writeText(w, board.WriteText)
}

func writeText(w http.ResponseWriter, write func(io.Writer) error) error {
	var b bytes.Buffer
	if err := write(&b); err != nil {
		return err
	}
	send(w, http.StatusOK, "text/plain; charset=utf-8", b.Bytes())
	return nil
}

// parameters reads the query of a URL. What is wrong with it is told by err, all
// of it at once.
type parameters struct {
	r       *http.Request
	problem []council.FieldError
}

func newParameters(r *http.Request, known ...string) *parameters {
	p := &parameters{r: r}
	for name := range r.URL.Query() {
		if !slices.Contains(known, name) {
			p.refuse(name, "there is no such parameter", "use "+strings.Join(known, ", "))
		}
	}
	return p
}

// get returns the value of a parameter, the last where it is given several times.
func (p *parameters) get(name string) (value string, given bool) {
	values := p.r.URL.Query()[name]
	if len(values) == 0 {
		return "", false
	}
	return values[len(values)-1], true
}

func (p *parameters) refuse(field, message, fix string) {
	p.problem = append(p.problem, council.FieldError{Field: field, Message: message, Fix: fix})
}

// count returns a number of something, nil when it is not given.
func (p *parameters) count(name string) *int {
	value, given := p.get(name)
	if !given {
		return nil
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 0 {
		p.refuse(name, fmt.Sprintf("%q is not a number of %s", value, name), "give a whole number, 0 for no limit")
		return nil
	}
	return &n
}

func (p *parameters) category(name string) string {
	value, given := p.get(name)
	if given && !slices.Contains(council.Categories(), value) {
		p.refuse(name, fmt.Sprintf("%q is not a category", value), "use one of "+strings.Join(council.Categories(), ", "))
	}
	return value
}

// text reports whether plain text is wanted: by format, or else by the Accept header.
func (p *parameters) text() bool {
	switch value, given := p.get("format"); {
	case !given:
		return prefers(p.r.Header.Values("Accept"), "text/plain")
	case value == "text":
		return true
	case value != "json":
		p.refuse("format", fmt.Sprintf("%q is not a format", value), "use json or text")
	}
	return false
}

func (p *parameters) err() error {
	if len(p.problem) == 0 {
		return nil
	}
	slices.SortFunc(p.problem, func(a, b council.FieldError) int { return strings.Compare(a.Field, b.Field) })
	return &council.Error{Code: council.CodeInvalid, Detail: "the parameters are not valid", Fields: p.problem}
}

// prefers reports whether an Accept header names a media type before JSON and
// before anything at all.
func prefers(accept []string, wanted string) bool {
	for part := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		switch media, _, _ := mime.ParseMediaType(part); media {
		case wanted:
			return true
		case "application/json", "*/*":
			return false
		}
	}
	return false
}
