package httpapi

import (
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/render"
)

// maxReports is the most reports, leaderboards and estimates that are computed at once. They are limited because each
// of them keeps a CPU core busy.
const maxReports = 8

// boundReports limits the reports that are computed at once to [maxReports]. A single caller gets half of the places.
func (a *API) boundReports(next http.Handler) http.Handler {
	return a.handler(func(w http.ResponseWriter, r *http.Request) error {
		release, err := a.placeForReport(r)
		if err != nil {
			return err
		}
		defer release()
		next.ServeHTTP(w, r)
		return nil
	})
}

// placeForReport takes a place for a report. If none is free, it returns an error at once.
func (a *API) placeForReport(r *http.Request) (release func(), err error) {
	release, ok := a.reports.take(a.holder(r), 1)
	if !ok {
		return nil, &council.Error{
			Code: council.CodeUnavailable, RetryAfter: time.Second,
			Detail: "this caller has too many unfinished reports; try again in a moment",
		}
	}
	return release, nil
}

// records returns the query for the record store that the parameters describe.
func (p *parameters) records() bias.Query {
	return bias.Query{
		Sessions: p.count("sessions"), Days: p.count("days"), Since: p.time("since"), Until: p.time("until"),
		Reviewer: p.get("reviewer"), Model: p.get("model"), ConfigVersion: p.get("config_version"),
		ModelVersion: p.get("model_version"), Source: p.choice("source", "use", []string{council.SourceJudge}),
		Category: p.choice("category", "use one of", council.Categories()), Language: p.language(),
	}
}

// language returns the language code of the query, or "" if it has none.
func (p *parameters) language() string {
	value := p.get("language")
	if value != "" && !council.IsLanguage(value) {
		p.Add("language", fmt.Sprintf("%q is not a language code", value),
			"use two lower-case letters of ISO 639-1, such as en")
	}
	return value
}

// biasReport is GET /v1/bias-report.
func (a *API) biasReport(w http.ResponseWriter, r *http.Request) error {
	p := newParameters(r)
	query := p.records()
	query.Split = p.choice("split", "use one of", []string{"category", "language"})
	format := p.format("json", "text", "csv", "html")
	err := p.err()
	if err != nil {
		return err
	}
	report := render.FullReport{}
	if report.Report, err = a.o.Daemon.Report(r.Context(), query); err != nil {
		return err
	}
	if report.Evidence, err = a.o.Daemon.Evidence(r.Context(), query); err != nil {
		return err
	}
	switch format {
	case "text":
		return sendForm(w, format, render.Text(report, true, a.o.Settings))
	case "csv":
		return sendForm(w, format, render.CSV(report.Report))
	case "html":
		return sendForm(w, format, render.HTML(report))
	default:
		return WriteJSON(w, http.StatusOK, report)
	}
}

// leaderboard is GET /v1/leaderboard.
func (a *API) leaderboard(w http.ResponseWriter, r *http.Request) error {
	p := newParameters(r)
	if p.choice("scope", "use one of", []string{"records", "events"}) == "events" {
		return a.eventBoard(w, r, p)
	}
	query := p.records()
	format := p.format("json", "text", "csv", "html")
	if err := p.err(); err != nil {
		return err
	}
	board, err := a.o.Daemon.Leaderboard(r.Context(), query)
	if err != nil {
		return err
	}
	switch format {
	case "text":
		return sendForm(w, format, render.Leaderboard(board, a.o.Settings))
	case "csv":
		return sendForm(w, format, render.LeaderboardCSV(board))
	case "html":
		return sendForm(w, format, render.LeaderboardHTML(board))
	default:
		return WriteJSON(w, http.StatusOK, board)
	}
}

// mediaTypes are the media types that a report can have, by the value of the parameter format.
//
//nolint:gochecknoglobals // a constant table
var mediaTypes = map[string]string{
	"json": "application/json", "text": "text/plain", "csv": "text/csv", "html": "text/html",
}

// sendForm sends a report or a leaderboard in a form other than JSON.
func sendForm(w http.ResponseWriter, format string, body []byte) error {
	if format == "html" {
		// The page contains its own style. The browser loads nothing else for it.
		w.Header().Set("Content-Security-Policy",
			"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
	}
	send(w, http.StatusOK, mediaTypes[format]+"; charset=utf-8", body)
	return nil
}

// parameters reads the query of a URL and collects the problems of the query. newParameters returns a new one. Each
// method that reads a parameter adds the name of the parameter to known. When all parameters are read, err returns all
// problems.
type parameters struct {
	Problems
	r     *http.Request
	query url.Values
	known []string // the names that were read, whether the query has them or not
}

func newParameters(r *http.Request) *parameters {
	query, err := url.ParseQuery(r.URL.RawQuery)
	p := &parameters{r: r, query: query}
	if err != nil { // query has only the pairs without an error.
		p.Add("query", err.Error(), "write & between parameters, and in their values ; as %3B and % as %25")
	}
	return p
}

// get returns the value of a parameter, or "" if it is missing. If the query has several values, get returns the last.
func (p *parameters) get(name string) string {
	p.known = append(p.known, name)
	values := p.query[name]
	if len(values) == 0 {
		return ""
	}
	return values[len(values)-1]
}

// count returns a parameter that is a whole number of at least 0. It returns nil if the parameter is missing.
func (p *parameters) count(name string) *int {
	value := p.get(name)
	if value == "" {
		return nil
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 0 {
		p.Add(name, fmt.Sprintf("%q is not a number of %s", value, name), "give a whole number, 0 for no limit")
		return nil
	}
	return &n
}

// choice returns the value of a parameter, or "" if the parameter is missing. The value must be one of those in known.
// The argument fix holds the words before the list of allowed values in an error.
func (p *parameters) choice(name, fix string, known []string) string {
	value := p.get(name)
	if value != "" && !slices.Contains(known, value) {
		p.Add(name, fmt.Sprintf("%q is not a %s", value, name), fix+" "+strings.Join(known, ", "))
	}
	return value
}

// time returns a parameter that is a day in UTC or a time with its offset. It returns the zero time if the parameter is
// missing.
func (p *parameters) time(name string) time.Time {
	value := p.get(name)
	if value == "" {
		return time.Time{}
	}
	t, err := council.ParseTime(value)
	if err != nil {
		p.Add(name, fmt.Sprintf("%q is not a time", value),
			"use a day in UTC, such as 2026-11-20, or a time such as 2026-11-20T09:00:00Z, with + written as %2B")
	}
	return t
}

// format returns the form of the answer, which is one of the forms in known. The parameter format chooses the form. If
// that parameter is missing, the Accept header chooses it. If the header names none of the forms, format returns the
// first form in known.
func (p *parameters) format(known ...string) string {
	if value := p.choice("format", "use", known); value != "" {
		return value
	}
	media := make([]string, len(known))
	for i, format := range known {
		media[i] = mediaTypes[format]
	}
	return known[slices.Index(media, accepted(p.r, media...))]
}

// accepted returns the first media type in the Accept header that is one of the types in known. If the header has no
// such type, or has */* before it, accepted returns the first type in known. It ignores the weights in the header.
func accepted(r *http.Request, known ...string) string {
	for part := range strings.SplitSeq(strings.Join(r.Header.Values("Accept"), ","), ",") {
		media, _, _ := mime.ParseMediaType(part)
		if slices.Contains(known, media) {
			return media
		}
		if media == "*/*" {
			break
		}
	}
	return known[0]
}

// err returns all problems as one error, sorted by parameter, or nil if there are no problems. It must be called after
// all parameters were read, because it reports every parameter that was not read as unknown.
func (p *parameters) err() error {
	for _, name := range slices.Sorted(maps.Keys(p.query)) {
		if !slices.Contains(p.known, name) {
			p.Add(name, "there is no such parameter", "use "+strings.Join(p.known, ", "))
		}
	}
	slices.SortFunc(p.named, func(a, b council.FieldError) int { return strings.Compare(a.Field, b.Field) })
	return p.Problems.err("the parameters are not valid")
}
