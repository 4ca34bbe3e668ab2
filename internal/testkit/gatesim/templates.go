package gatesim

// template is a small function. It is right, or it has one defect. In both forms it has two tempting places: lines
// that are right, but that reviewers like to complain about.
type template struct {
	file  string
	code  string // the right form
	right string // the lines of code that the defect replaces
	wrong string // the lines with the defect
	// wordings describe the defect in three ways, and scenario says what goes wrong.
	wordings [3]string
	scenario string
	tempting [2]tempting
}

// tempting is a place where a reviewer may find a defect that is not there.
type tempting struct {
	line     string
	wordings [2]string
}

// templates returns the 20 templates. Their texts were written for this package.
func templates() []template {
	return []template{
		{
			file: "pay/refund.go",
			code: `func (s *Store) Cancel(id string) error {
	i := s.find(id)
	if i < 0 {
		return ErrNoRefund
	}
	s.refunds = append(s.refunds[:i], s.refunds[i+1:]...)
	return s.persist(context.WithoutCancel(s.base))
}`,
			right: "\ti := s.find(id)\n\tif i < 0 {\n\t\treturn ErrNoRefund\n\t}\n",
			wrong: "\ti := max(s.find(id), 0)\n",
			wordings: [3]string{
				"an unknown id removes the first refund",
				"a missing entry is treated as index 0, so another customer loses a refund",
				"find reports -1 for an id that does not exist, and max turns it into a valid position",
			},
			scenario: "Cancel with an id that is not stored",
			tempting: [2]tempting{
				{"\ts.refunds = append(s.refunds[:i], s.refunds[i+1:]...)", [2]string{
					"append overwrites the backing array that callers may still hold", "deleting in place corrupts slices returned earlier",
				}},
				{"\treturn s.persist(context.WithoutCancel(s.base))", [2]string{
					"the write ignores cancellation and can hang forever", "persist runs without a deadline",
				}},
			},
		},
		{
			file: "net/retry.go",
			code: `func (c *Client) attempt(n int, call func() error) (err error) {
	for i := 0; i < n; i++ {
		if err = call(); err == nil {
			return nil
		}
		time.Sleep(c.pause << min(i, 6))
	}
	return fmt.Errorf("after %d attempts: %w", n, err)
}`,
			right: "\t\tif err = call(); err == nil {\n\t\t\treturn nil\n",
			wrong: "\t\tif err := call(); err == nil {\n\t\t\treturn nil\n",
			wordings: [3]string{
				"err is shadowed, so the returned error wraps nil",
				"the inner declaration hides the named result and the cause of the failure is lost",
				"callers never see why every attempt failed: := makes a new variable in the loop",
			},
			scenario: "all attempts fail",
			tempting: [2]tempting{
				{"\t\ttime.Sleep(c.pause << min(i, 6))", [2]string{
					"the shift overflows for many attempts", "the back-off has no jitter and no cap",
				}},
				{"\tfor i := 0; i < n; i++ {", [2]string{
					"the loop makes one attempt too few", "an n of zero is not rejected",
				}},
			},
		},
		{
			file: "cache/memo.go",
			code: `func (m *Memo) Get(key string) ([]byte, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	entry, ok := m.entries[key]
	if !ok || m.clock().After(entry.until) {
		return nil, false
	}
	m.hits++
	return entry.body[:len(entry.body):len(entry.body)], true
}`,
			right: "\tm.mu.Lock()\n\tdefer m.mu.Unlock()\n\tentry, ok := m.entries[key]\n",
			wrong: "\tm.mu.Lock()\n\tentry, ok := m.entries[key]\n\tm.mu.Unlock()\n",
			wordings: [3]string{
				"the hit counter changes after the lock is released, which is a data race",
				"hits is incremented by several goroutines without synchronisation",
				"Unlock comes too early: everything below it touches shared state unprotected",
			},
			scenario: "two goroutines call Get at the same time",
			tempting: [2]tempting{
				{"\tif !ok || m.clock().After(entry.until) {", [2]string{
					"an expired item is never evicted from memory", "entry.until is read although the key is absent",
				}},
				{"\treturn entry.body[:len(entry.body):len(entry.body)], true", [2]string{
					"the cached bytes are returned without a copy", "the slice expression exceeds the capacity",
				}},
			},
		},
		{
			file: "files/export.go",
			code: `func writeAll(name string, rows []Row) (err error) {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for _, row := range rows {
		if _, err = f.WriteString(row.Line() + "\n"); err != nil {
			return err
		}
	}
	return f.Sync()
}`,
			right: "\t\tif _, err = f.WriteString(row.Line() + \"\\n\"); err != nil {\n\t\t\treturn err\n\t\t}\n",
			wrong: "\t\t_, _ = f.WriteString(row.Line() + \"\\n\")\n",
			wordings: [3]string{
				"write errors are discarded, so a full disk gives a truncated export without a message",
				"the result of WriteString is ignored and lost rows go unnoticed",
				"data may be missing although the function reports success",
			},
			scenario: "the disk becomes full in the middle",
			tempting: [2]tempting{
				{"\tdefer func() { err = errors.Join(err, f.Close()) }()", [2]string{
					"the deferred function cannot change what is returned", "Close may run twice on the same descriptor",
				}},
				{"\tf, err := os.Create(name)", [2]string{
					"an existing file is overwritten without a question", "the permissions of the new file are too wide",
				}},
			},
		},
		{
			file: "feed/fetch.go",
			code: `func (f *Feed) pull(ctx context.Context, link string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, link, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := f.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(io.LimitReader(resp.Body, f.limit))
}`,
			right: "\treq, err := http.NewRequestWithContext(ctx, http.MethodGet, link, http.NoBody)\n",
			wrong: "\treq, err := http.NewRequest(http.MethodGet, link, http.NoBody)\n",
			wordings: [3]string{
				"the request ignores ctx, so it cannot be cancelled",
				"NewRequest uses the background context and a caller's deadline has no effect",
				"shutdown waits for slow feeds, because nothing interrupts the transfer",
			},
			scenario: "the caller gives up while the server is silent",
			tempting: [2]tempting{
				{"\tdefer resp.Body.Close()", [2]string{
					"the error of closing the body is swallowed", "resp may be nil here and the deferred call panics",
				}},
				{"\treturn io.ReadAll(io.LimitReader(resp.Body, f.limit))", [2]string{
					"a longer document is cut off silently", "the whole feed is held in memory",
				}},
			},
		},
		{
			file: "auth/token.go",
			code: `func (g *Guard) allowed(header string) bool {
	token, found := strings.CutPrefix(header, "Bearer ")
	if !found || token == "" {
		return false
	}
	sum := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(sum[:], g.digest) == 1
}`,
			right: "\treturn subtle.ConstantTimeCompare(sum[:], g.digest) == 1\n",
			wrong: "\treturn bytes.HasPrefix(sum[:], g.digest)\n",
			wordings: [3]string{
				"an empty configured digest lets every token in",
				"HasPrefix accepts any credential while g.digest is unset",
				"prefix matching is not equality: authentication is bypassed if the secret was never loaded",
			},
			scenario: "a request with any token before the secret is configured",
			tempting: [2]tempting{
				{"\tsum := sha256.Sum256([]byte(token))", [2]string{
					"a fast hash is not fit for secrets", "the digest has no salt",
				}},
				{"\ttoken, found := strings.CutPrefix(header, \"Bearer \")", [2]string{
					"the scheme is compared with case, so bearer in small letters is refused", "surrounding blanks are not trimmed from the header",
				}},
			},
		},
		{
			file: "queue/batch.go",
			code: `func split(jobs []Job, size int) (batches [][]Job) {
	for len(jobs) > 0 {
		n := min(size, len(jobs))
		batches = append(batches, jobs[:n:n])
		jobs = jobs[n:]
	}
	return batches
}`,
			right: "\t\tn := min(size, len(jobs))\n\t\tbatches = append(batches, jobs[:n:n])\n",
			wrong: "\t\tn := size\n\t\tbatches = append(batches, jobs[:n:n])\n",
			wordings: [3]string{
				"the last batch panics unless the number of jobs is a multiple of size",
				"slicing beyond the length: an incomplete remainder is out of range",
				"n is not limited to what is left",
			},
			scenario: "five jobs and a size of two",
			tempting: [2]tempting{
				{"\t\tjobs = jobs[n:]", [2]string{
					"a size of zero loops forever", "the parameter is modified, which surprises the caller",
				}},
				{"\tfor len(jobs) > 0 {", [2]string{
					"an empty input gives nil in place of an empty list", "the capacity of batches is not reserved",
				}},
			},
		},
		{
			file: "meter/window.go",
			code: `func (w *Window) Rate(now time.Time) float64 {
	elapsed := now.Sub(w.start).Seconds()
	if elapsed <= 0 {
		return 0
	}
	return float64(w.count.Load()) / elapsed
}`,
			right: "\telapsed := now.Sub(w.start).Seconds()\n",
			wrong: "\telapsed := float64(now.Sub(w.start).Milliseconds())\n",
			wordings: [3]string{
				"the rate is per millisecond while its readers expect seconds",
				"wrong unit: reported throughput is a thousand times too small",
				"Milliseconds replaces Seconds and alerts on low traffic fire all the time",
			},
			scenario: "600 events in one minute",
			tempting: [2]tempting{
				{"\tif elapsed <= 0 {", [2]string{
					"comparing a float with zero is unreliable", "a clock that moves back hides real traffic",
				}},
				{"\treturn float64(w.count.Load()) / elapsed", [2]string{
					"the counter may change between the two reads", "large counts lose precision in the conversion",
				}},
			},
		},
		{
			file: "shop/basket.py",
			code: `def add_line(sku, amount, lines=None):
    """Return the lines of a basket with one more."""
    lines = list(lines or [])
    lines.append({"sku": sku, "amount": int(amount)})
    return sorted(lines, key=lambda line: line["sku"])`,
			right: "def add_line(sku, amount, lines=None):\n    \"\"\"Return the lines of a basket with one more.\"\"\"\n    lines = list(lines or [])\n",
			wrong: "def add_line(sku, amount, lines=[]):\n    \"\"\"Return the lines of a basket with one more.\"\"\"\n",
			wordings: [3]string{
				"the mutable default is shared, so baskets of different customers mix",
				"lines=[] is created once and keeps items between calls",
				"goods of earlier orders appear in a new one: the default list is never reset",
			},
			scenario: "add_line is called twice without lines",
			tempting: [2]tempting{
				{"    lines.append({\"sku\": sku, \"amount\": int(amount)})", [2]string{
					"int raises for an amount that is not a number", "an article that is already there is listed twice",
				}},
				{"    return sorted(lines, key=lambda line: line[\"sku\"])", [2]string{
					"sorting at each call takes quadratic time", "the order in which the customer added goods is lost",
				}},
			},
		},
		{
			file: "shop/search.py",
			code: `def find_orders(db, customer, limit=50):
    rows = db.execute(
        "SELECT id, total FROM orders WHERE customer = ? LIMIT ?",
        (customer, min(limit, 500)),
    )
    return [Order(*row) for row in rows]`,
			right: "        \"SELECT id, total FROM orders WHERE customer = ? LIMIT ?\",\n        (customer, min(limit, 500)),\n",
			wrong: "        f\"SELECT id, total FROM orders WHERE customer = '{customer}' LIMIT ?\",\n        (min(limit, 500),),\n",
			wordings: [3]string{
				"SQL injection through customer",
				"user input is pasted into the statement, so a quote in the name changes the query",
				"the string is formatted in place of being bound as a parameter",
			},
			scenario: "a customer named ' OR 1=1 --",
			tempting: [2]tempting{
				{"    return [Order(*row) for row in rows]", [2]string{
					"columns are unpacked by position, which breaks if the table changes", "all rows are loaded at once",
				}},
				{"def find_orders(db, customer, limit=50):", [2]string{
					"a negative limit is not refused", "there is no check that the caller may see this customer",
				}},
			},
		},
		{
			file: "sync/upload.py",
			code: `def upload(store, path, tries=3):
    for left in range(tries, 0, -1):
        try:
            store.put(path.name, path.read_bytes())
            return True
        except TransferError as error:
            log.warning("%s: %s, %d tries left", path.name, error, left - 1)
    return False`,
			right: "        except TransferError as error:\n            log.warning(\"%s: %s, %d tries left\", path.name, error, left - 1)\n    return False",
			wrong: "        except Exception:\n            continue\n    return True",
			wordings: [3]string{
				"upload reports success when every attempt failed",
				"the function ends with True even though nothing was stored",
				"all exceptions are swallowed, and the caller deletes files that never arrived",
			},
			scenario: "the store is unreachable",
			tempting: [2]tempting{
				{"            store.put(path.name, path.read_bytes())", [2]string{
					"two directories may hold equal names and overwrite each other", "big files are read into memory as a whole",
				}},
				{"    for left in range(tries, 0, -1):", [2]string{
					"there is no pause between attempts", "the countdown stops one attempt early",
				}},
			},
		},
		{
			file: "auth/session.py",
			code: `def is_live(session, grace=timedelta(seconds=30)):
    now = datetime.now(timezone.utc)
    if session.revoked:
        return False
    return now < session.expires + grace`,
			right: "    now = datetime.now(timezone.utc)\n",
			wrong: "    now = datetime.utcnow()\n",
			wordings: [3]string{
				"a naive time is compared with an aware one, which raises TypeError",
				"utcnow has no time zone: checking the expiry fails for every stored login",
				"comparison of datetimes with and without tzinfo is not allowed",
			},
			scenario: "any session whose expiry has a time zone",
			tempting: [2]tempting{
				{"def is_live(session, grace=timedelta(seconds=30)):", [2]string{
					"a default argument is evaluated only once", "thirty seconds of grace extend stolen sessions",
				}},
				{"    return now < session.expires + grace", [2]string{
					"expires may be None for permanent logins", "the boundary itself should still count as live",
				}},
			},
		},
		{
			file: "stats/summary.py",
			code: `def mean_delay(samples):
    known = [s.delay for s in samples if s.delay is not None]
    if not known:
        return None
    return sum(known) / len(known)`,
			right: "    if not known:\n        return None\n    return sum(known) / len(known)",
			wrong: "    return sum(known) / len(samples)",
			wordings: [3]string{
				"samples without a delay are counted in the divisor, and the mean is too low",
				"it divides by all entries, not by the known ones, and fails for an empty list",
				"ZeroDivisionError if there is nothing to average; otherwise gaps weigh as zeros",
			},
			scenario: "two delays of 4 s and two unknown ones",
			tempting: [2]tempting{
				{"    known = [s.delay for s in samples if s.delay is not None]", [2]string{
					"a delay of zero is filtered out", "a generator given as samples is consumed here",
				}},
				{"def mean_delay(samples):", [2]string{
					"outliers dominate, a median would be better", "the unit of the result is not documented",
				}},
			},
		},
		{
			file: "web/static.py",
			code: `def locate(root, requested):
    target = (root / requested.lstrip("/")).resolve()
    if not target.is_relative_to(root.resolve()):
        raise PermissionError(requested)
    return target if target.is_file() else root / "404.html"`,
			right: "    if not target.is_relative_to(root.resolve()):\n",
			wrong: "    if not str(target).startswith(str(root.resolve())):\n",
			wordings: [3]string{
				"path traversal into a sibling whose name begins like the root",
				"startswith accepts /srv/www-private for the root /srv/www",
				"comparing paths as text lets a request leave the directory",
			},
			scenario: "a request for ../www-private/key.pem",
			tempting: [2]tempting{
				{"    target = (root / requested.lstrip(\"/\")).resolve()", [2]string{
					"encoded slashes are not decoded before the check", "resolve follows links out of the tree",
				}},
				{"    return target if target.is_file() else root / \"404.html\"", [2]string{
					"the missing page is sent with status 200", "there is a race between the test and the opening",
				}},
			},
		},
		{
			file: "ui/save.js",
			code: `export async function save(form, api) {
  const draft = Object.fromEntries(new FormData(form));
  await api.put("/drafts/" + encodeURIComponent(draft.id), draft);
  form.dataset.saved = new Date().toISOString();
  return draft.id;
}`,
			right: "  await api.put(\"/drafts/\" + encodeURIComponent(draft.id), draft);\n",
			wrong: "  api.put(\"/drafts/\" + encodeURIComponent(draft.id), draft);\n",
			wordings: [3]string{
				"await is missing, so the form says saved before the request ends",
				"a rejected promise from put is never handled and the user sees success",
				"the draft is marked as stored even if the server refused it",
			},
			scenario: "the server answers 500",
			tempting: [2]tempting{
				{"  const draft = Object.fromEntries(new FormData(form));", [2]string{
					"fields with several values keep only one", "file inputs cannot be sent in this form",
				}},
				{"  form.dataset.saved = new Date().toISOString();", [2]string{
					"the clock of the client cannot be trusted", "the attribute is not reset on the next edit",
				}},
			},
		},
		{
			file: "ui/scores.js",
			code: `export function top(scores, count = 3) {
  const sorted = [...scores].sort((a, b) => b - a);
  const kept = sorted.slice(0, count);
  return kept.map((score, place) => ({ place: place + 1, score }));
}`,
			right: "  const sorted = [...scores].sort((a, b) => b - a);\n",
			wrong: "  const sorted = [...scores].sort().reverse();\n",
			wordings: [3]string{
				"numbers are sorted as text, so 9 comes before 10",
				"sort without a comparator puts 100 behind 20",
				"lexicographic order gives the wrong winners",
			},
			scenario: "the scores 9, 10 and 100",
			tempting: [2]tempting{
				{"  const kept = sorted.slice(0, count);", [2]string{
					"a count above the length is not handled", "players with equal scores are cut arbitrarily",
				}},
				{"  return kept.map((score, place) => ({ place: place + 1, score }));", [2]string{
					"places begin at one while the rest of the page counts from zero", "shared ranks get different places",
				}},
			},
		},
		{
			file: "ui/pager.js",
			code: `export function pageFrom(query, pages) {
  const asked = Number.parseInt(query.get("page") ?? "0", 10);
  if (Number.isNaN(asked) || asked < 0) return 0;
  return Math.min(asked, Math.max(pages - 1, 0));
}`,
			right: "  return Math.min(asked, Math.max(pages - 1, 0));\n",
			wrong: "  return Math.min(asked, pages);\n",
			wordings: [3]string{
				"the index may equal pages, which is one beyond the last page",
				"off by one: asking for a high number shows an empty list",
				"pages count from 0, so the upper bound must be pages - 1",
			},
			scenario: "page=99 of 10",
			tempting: [2]tempting{
				{"  const asked = Number.parseInt(query.get(\"page\") ?? \"0\", 10);", [2]string{
					"trailing letters such as 3abc are accepted", "a missing parameter is treated like the first page",
				}},
				{"  if (Number.isNaN(asked) || asked < 0) return 0;", [2]string{
					"wrong input is hidden in place of being reported", "negative zero slips through",
				}},
			},
		},
		{
			file: "ui/comment.js",
			code: `export function show(list, comment) {
  const item = document.createElement("li");
  item.className = comment.own ? "own" : "other";
  item.textContent = comment.text;
  list.prepend(item);
}`,
			right: "  item.textContent = comment.text;\n",
			wrong: "  item.innerHTML = comment.text;\n",
			wordings: [3]string{
				"cross-site scripting: a comment can run scripts in other browsers",
				"innerHTML renders markup that visitors typed",
				"untrusted text is inserted without escaping",
			},
			scenario: "a comment with an img tag and onerror",
			tempting: [2]tempting{
				{"  item.className = comment.own ? \"own\" : \"other\";", [2]string{
					"existing classes of the element are dropped", "own may be undefined for old records",
				}},
				{"  list.prepend(item);", [2]string{
					"the list grows without a limit", "screen readers do not announce the new entry",
				}},
			},
		},
		{
			file: "ui/panel.js",
			code: `export function mount(panel, bus) {
  const refresh = () => panel.render(bus.state);
  bus.addEventListener("change", refresh);
  refresh();
  return () => bus.removeEventListener("change", refresh);
}`,
			right: "  return () => bus.removeEventListener(\"change\", refresh);\n",
			wrong: "  return () => bus.removeEventListener(\"change\", () => refresh());\n",
			wordings: [3]string{
				"the listener is never removed, because a new function is passed",
				"unmounted panels keep rendering: removal needs the same reference",
				"each mount leaks a handler and its panel",
			},
			scenario: "a panel is opened and closed a hundred times",
			tempting: [2]tempting{
				{"  const refresh = () => panel.render(bus.state);", [2]string{
					"rendering at each event is not throttled", "this loses its binding inside render",
				}},
				{"  bus.addEventListener(\"change\", refresh);", [2]string{
					"an event between mounting and rendering is handled twice", "the handler should be passive",
				}},
			},
		},
		{
			file: "pay/amount.js",
			code: `export function cents(text) {
  const value = Number(text.replace(",", "."));
  if (!Number.isFinite(value) || value < 0) throw new RangeError(text);
  return Math.round(value * 100);
}`,
			right: "  return Math.round(value * 100);\n",
			wrong: "  return Math.trunc(value * 100);\n",
			wordings: [3]string{
				"amounts such as 1.15 lose a cent",
				"binary fractions are cut off in place of rounded: 19.99 becomes 1998",
				"truncation after multiplying a float understates the price",
			},
			scenario: "the text 19.99",
			tempting: [2]tempting{
				{"  const value = Number(text.replace(\",\", \".\"));", [2]string{
					"only the first comma is replaced", "thousands separators are misread",
				}},
				{"  if (!Number.isFinite(value) || value < 0) throw new RangeError(text);", [2]string{
					"an empty text counts as zero", "the message of the exception shows user input",
				}},
			},
		},
	}
}
