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

// maxReports is the most reports, leaderboards and estimates that are computed at once: each keeps a core busy.
const maxReports = 8

// boundReports refuses a report beyond [maxReports]. A single caller gets half of the
// places.
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

// placeForReport takes a place for a report, or refuses at once.
func (a *API) placeForReport(r *http.Request) (release func(), err error) {
	release, ok := a.reports.take(a.holder(r), 1)
	if !ok {
		return nil, &council.Error{
			Code: council.CodeUnavailable, RetryAfter: time.Second,
			Detail: "as many reports of this caller are being computed as may at once; try again in a moment",
		}
	}
	return release, nil
}

// records returns which records are asked for.
func (p *parameters) records() bias.Query {
	return bias.Query{
		Sessions: p.count("sessions"), Days: p.count("days"), Since: p.time("since"), Until: p.time("until"),
		Reviewer: p.get("reviewer"), Model: p.get("model"), ConfigVersion: p.get("config_version"),
		ModelVersion: p.get("model_version"),
		Category:     p.choice("category", "use one of", council.Categories()), Language: p.language(),
	}
}

// language returns a language code, "" when none is given.
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

// mediaTypes are the media types of the forms a report has.
//
//nolint:gochecknoglobals // a constant table
var mediaTypes = map[string]string{
	"json": "application/json", "text": "text/plain", "csv": "text/csv", "html": "text/html",
}

// sendForm sends a report or a leaderboard in a form other than JSON.
func sendForm(w http.ResponseWriter, format string, body []byte) error {
	if format == "html" {
		// The page brings its own style, and neither needs nor gets anything else.
		w.Header().Set("Content-Security-Policy",
			"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
	}
	send(w, http.StatusOK, mediaTypes[format]+"; charset=utf-8", body)
	return nil
}

// parameters reads the query of a URL. All problems of the query are one error, which
// err returns. newParameters makes it.
type parameters struct {
	Problems
	r     *http.Request
	query url.Values // of r
	known []string   // the parameters that were read, whether they are given or not
}

func newParameters(r *http.Request) *parameters {
	query, err := url.ParseQuery(r.URL.RawQuery)
	p := &parameters{r: r, query: query}
	if err != nil { // The pairs with an error are not in query.
		p.Add("query", err.Error(), "write & between parameters, and in their values ; as %3B and % as %25")
	}
	return p
}

// get returns the value of a parameter, the last where it is given several times;
// an empty one counts as not given.
func (p *parameters) get(name string) string {
	p.known = append(p.known, name)
	values := p.query[name]
	if len(values) == 0 {
		return ""
	}
	return values[len(values)-1]
}

// count returns a number of something, nil when it is not given.
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

// choice returns the value of a parameter that is one of known, "" when it is not given.
func (p *parameters) choice(name, fix string, known []string) string {
	value := p.get(name)
	if value != "" && !slices.Contains(known, value) {
		p.Add(name, fmt.Sprintf("%q is not a %s", value, name), fix+" "+strings.Join(known, ", "))
	}
	return value
}

// time returns a day, or an instant with its offset; the zero time when it is not given.
func (p *parameters) time(name string) time.Time {
	value := p.get(name)
	if value == "" {
		return time.Time{}
	}
	t, err := council.ParseTime(value)
	if err != nil {
		p.Add(name, fmt.Sprintf("%q is not a time", value),
			"use RFC 3339, as 2026-11-20T09:00:00Z, with + written as %2B, or a day in UTC, as 2026-11-20")
	}
	return t
}

// format returns the form that is wanted, one of known: by format, or else the
// first that the Accept header names. The first one known is the default.
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

// accepted returns the media type, one of known, that the Accept header names
// first; the first one known is the default.
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

// err returns all problems as one error, by parameter; nil without any. It comes when
// all parameters have been read: others are refused.
func (p *parameters) err() error {
	for _, name := range slices.Sorted(maps.Keys(p.query)) {
		if !slices.Contains(p.known, name) {
			p.Add(name, "there is no such parameter", "use "+strings.Join(p.known, ", "))
		}
	}
	slices.SortFunc(p.named, func(a, b council.FieldError) int { return strings.Compare(a.Field, b.Field) })
	return p.Problems.err("the parameters are not valid")
}
