package httpapi

import (
	"bytes"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/councild/councild/internal/council"
)

// biasReport is GET /v1/bias-report.
func (a *API) biasReport(w http.ResponseWriter, r *http.Request) error {
	query, text, err := reportQuery(r)
	if err != nil {
		return err
	}
	report, err := a.o.Daemon.Report(r.Context(), query)
	if err != nil {
		return err
	}
	if !text {
		return writeJSON(w, http.StatusOK, report)
	}
	var b bytes.Buffer
	if err := report.WriteText(&b, true); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	send(w, http.StatusOK, "text/plain; charset=utf-8", b.Bytes())
	return nil
}

// reportQuery reads the parameters of a report and whether it is wanted as text:
// by format, or else by the Accept header.
func reportQuery(r *http.Request) (q ReportQuery, text bool, err error) {
	var fields []council.FieldError
	text = prefersText(r.Header.Values("Accept"))
	for name, values := range r.URL.Query() {
		value := values[len(values)-1]
		switch name {
		case "sessions", "days":
			n, err := strconv.Atoi(value)
			if err != nil || n < 0 {
				fields = append(fields, council.FieldError{Field: name, Message: fmt.Sprintf("%q is not a number of %s", value, name), Fix: "give a whole number, 0 for no limit"})
			} else if name == "sessions" {
				q.Sessions = &n
			} else {
				q.Days = &n
			}
		case "format":
			text = value == "text"
			if !text && value != "json" {
				fields = append(fields, council.FieldError{Field: name, Message: fmt.Sprintf("%q is not a format", value), Fix: "use json or text"})
			}
		default:
			fields = append(fields, council.FieldError{Field: name, Message: "there is no such parameter", Fix: "use sessions, days or format"})
		}
	}
	if len(fields) > 0 {
		slices.SortFunc(fields, func(a, b council.FieldError) int { return strings.Compare(a.Field, b.Field) })
		return q, text, &council.Error{Code: council.CodeInvalid, Detail: "the report's parameters are not valid", Fields: fields}
	}
	return q, text, nil
}

// prefersText reports whether an Accept header names plain text before JSON and
// before anything at all.
func prefersText(accept []string) bool {
	for part := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		switch media, _, _ := mime.ParseMediaType(part); media {
		case "text/plain":
			return true
		case "application/json", "*/*":
			return false
		}
	}
	return false
}
