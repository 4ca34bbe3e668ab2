package anonymize

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/councild/councild/internal/council"
)

// The reviewer of the tests saw p, q and r as A, B and C; the session has them as
// C, D and A, and as B an answer that the reviewer did not see: its own.
func reviewed() (from, to council.Slate) {
	return slate([]string{"p", "q", "r"}), slate([]string{"r", "own", "p", "q"})
}

func TestRelabel(t *testing.T) {
	const fence = "```"
	for _, tt := range []struct{ name, text, want string }{
		{"empty", "", ""},
		{"all at once", "Response A beats Response C, and Response C beats Response B.", "Response C beats Response A, and Response A beats Response D."},
		{"answer", "Answer A and answer B", "Answer C and answer D"},
		{"case of the name", "RESPONSE A, response B, ANSWER C", "RESPONSE C, response D, ANSWER A"},
		{"possessive", "Response A's proof; Response B’s proof", "Response C's proof; Response D’s proof"},
		{"end of text", "I prefer Response A", "I prefer Response C"},
		{"markup", "**Response A** _Response B_ Response **C** **Response** A ### Response B:", "**Response C** _Response D_ Response **A** **Response** C ### Response D:"},
		{"brackets and quotes", "(Response A) \"Response B\" “Response C”", "(Response C) \"Response D\" “Response A”"},
		{"no-break space", "Response\u00a0A", "Response\u00a0C"},
		{"other languages", "Die Antwort Response A ist besser. 回答 Response B 更好", "Die Antwort Response C ist besser. 回答 Response D 更好"},
		{"unknown label", "Response D, Response Z and Response A", "Response D, Response Z and Response C"},

		{"plural", "Responses A and B", "Responses C and D"},
		{"plural list", "Responses A, B, and C agree", "Responses C, D, and A agree"},
		{"list ends with its conjunction", "Unlike Responses A and B, C is used there", "Unlike Responses C and D, C is used there"},
		{"singular for two", "Response A and B", "Response C and D"},
		{"singular, comma", "In Response A, B is a matrix", "In Response C, B is a matrix"},
		{"signs", "Responses A/B, Response A vs. B, Response A > B > C", "Responses C/D, Response C vs. D, Response C > D > A"},
		{"unknown in a list", "Responses A, Z and B", "Responses C, Z and D"},
		{"list in bold", "Responses **A** and **B**", "Responses **C** and **D**"},

		{"inside words", "Response Able, Answerability, response Bs, unResponse A, Answer B2, Answer C_x", "Response Able, Answerability, response Bs, unResponse A, Answer B2, Answer C_x"},
		{"articles", "A great answer. B and C are letters. To answer a question; in response a user", "A great answer. B and C are letters. To answer a question; in response a user"},
		{"other sentence", "This is no response. A user would ask. In response, B", "This is no response. A user would ask. In response, B"},
		{"next line", "the best response\nA user", "the best response\nA user"},
		{"languages", "Answer C++ questions, Answer C# questions", "Answer C++ questions, Answer C# questions"},
		{"accents", "Response Aé, éResponse A", "Response Aé, éResponse A"},
		{"bare letters", "B is better than A; vitamin C; 0xA; A/B test; plan B", "B is better than A; vitamin C; 0xA; A/B test; plan B"},
		{"quoted letters", "the letters \"A\", \"B\" and 'C'", "the letters \"A\", \"B\" and 'C'"},
		{"quoted letter before a colon", "the letter \"A\": first", "the letter \"A\": first"},
		{"formula", "if A > B then\nwhere A = B\nA + B > C\nanswer*B", "if A > B then\nwhere A = B\nA + B > C\nanswer*B"},
		{"names of other things", "Grade: **A**. Option **B**, plan **C**", "Grade: **A**. Option **B**, plan **C**"},

		{"bold", "I prefer **B** over **A**; __C:__ neither", "I prefer **D** over **C**; __A:__ neither"},
		{"headings", "A: good\n- B: bad\n**C**: so so\n**A:** fine\n1. B: fine\n## C: fine\nnot A: fine", "C: good\n- D: bad\n**A**: so so\n**C:** fine\n1. D: fine\n## A: fine\nnot A: fine"},
		{"ranking line", "B > A > C", "D > C > A"},
		{"ranking line with ties", "- Ranking: (A = B) > **C**.\r\nB ≻ A", "- Ranking: (C = D) > **A**.\r\nD ≻ C"},
		{"no ranking line", "A = B", "A = B"},
		{"final ranking line", "**FINAL RANKING:** B, A, C", "**FINAL RANKING:** D, C, A"},
		{"final ranking list", "1. A\n\nFINAL RANKING\n1. B\n2) **A** - good\n- C (8/10)\n4. A good one\nA", "1. A\n\nFINAL RANKING\n1. D\n2) **C** - good\n- A (8/10)\n4. A good one\nA"},

		{"ballot", fence + "json\n{\"ranking\": [\"Response B\", \"Response A\"], \"scores\": {\"Response A\": 8}}\n" + fence, fence + "json\n{\"ranking\": [\"Response D\", \"Response C\"], \"scores\": {\"Response C\": 8}}\n" + fence},
		{"ballot of letters", fence + "\n{\"ranking\": [\"B\", [\"A\", 'c',], ], \"scores\": {\"A\": 8, \"B\": 7, \"note\": \"B\"}}\n" + fence, fence + "\n{\"ranking\": [\"D\", [\"C\", 'a',], ], \"scores\": {\"C\": 8, \"D\": 7, \"note\": \"B\"}}\n" + fence},
		{"ballot without a fence", "My ballot: {'ranking': ['response b', 'response a'], 'scores': {'response b': 9}}", "My ballot: {'ranking': ['response d', 'response c'], 'scores': {'response d': 9}}"},
		{"ballot of entries", "{\"ranking\": [{\"label\": \"B\", \"rank\": 1}, {\"rank\": 2, \"response\": \"A\"}]}", "{\"ranking\": [{\"label\": \"D\", \"rank\": 1}, {\"rank\": 2, \"response\": \"C\"}]}"},
		{"ballot that is a list", "~~~\n[\"B\", \"A\"]\n~~~", "~~~\n[\"D\", \"C\"]\n~~~"},
		{"ballot cut short", fence + "json\n{\"ranking\": [\"B\", \"A\"", fence + "json\n{\"ranking\": [\"D\", \"C\""},
		{"ballot in inline code", "`{\"ranking\": [\"B\"]}` is mine", "`{\"ranking\": [\"D\"]}` is mine"},
		{"review in a fence", fence + "markdown\nResponse A is good.\n\nFINAL RANKING:\n1. B\n" + fence, fence + "markdown\nResponse C is good.\n\nFINAL RANKING:\n1. D\n" + fence},
		{"key of other JSON", "{\"x\": \"A\", \"grade\": \"B\"}", "{\"x\": \"A\", \"grade\": \"B\"}"},

		{"code", "Response A:\n" + fence + "go\nx := \"Response A\" // A > B\nA: goto A\n" + fence + "\nResponse B", "Response C:\n" + fence + "go\nx := \"Response A\" // A > B\nA: goto A\n" + fence + "\nResponse D"},
		{"code in a list", "1. " + fence + "\n   Response A\n   " + fence + "\n2. Response B", "1. " + fence + "\n   Response A\n   " + fence + "\n2. Response D"},
		{"longer fence", fence + "`\n" + fence + "\nResponse A\n" + fence + "`\nResponse B", fence + "`\n" + fence + "\nResponse A\n" + fence + "`\nResponse D"},
		{"inline code", "`Response A` and ``Response `B` `` but Response C", "`Response A` and ``Response `B` `` but Response A"},
		{"between inline code", "`x` Response A `y` Response B `z", "`x` Response C `y` Response D `z"},
		{"inline code like a fence", fence + "Response A" + fence + " Response B", fence + "Response A" + fence + " Response D"},
		{"lone backtick", "a ` and Response A\n\nnext ` and Response B", "a ` and Response C\n\nnext ` and Response D"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			from, to := reviewed()
			if got := Relabel(tt.text, from, to); got != tt.want {
				t.Errorf("Relabel(%q)\n got %q\nwant %q", tt.text, got, tt.want)
			}
		})
	}
}

// The ninth label is the English pronoun, too.
func TestRelabelPronoun(t *testing.T) {
	from, to := slate(names("m", 9)), slate(names("m", 9))
	to[7], to[8] = council.Shown{Label: to[7].Label, Member: "m8"}, council.Shown{Label: to[8].Label, Member: "m7"}
	for text, want := range map[string]string{
		"Response I is best, Response I gives more":       "Response H is best, Response H gives more",
		"the answer I would give, in response I'd say":    "the answer I would give, in response I'd say",
		"Response H and I agree. Responses H and I agree": "Response I and I agree. Responses I and I agree",
		"Responses G, I, and H; Responses H and I.":       "Responses G, H, and I; Responses I and H.",
		"Responses H and I are equal":                     "Responses I and H are equal",
	} {
		if got := Relabel(text, from, to); got != want {
			t.Errorf("Relabel(%q)\n got %q\nwant %q", text, got, want)
		}
	}
}

func TestRelabelManyAnswers(t *testing.T) {
	from, to := slate(names("m", 30)), slate(names("m", 30))
	for i := range to {
		to[i].Member = from[(i+1)%30].Member // Response B becomes A, AA becomes Z
	}
	const text, want = "Response AA, Response AD; {\"ranking\": [\"AB\", \"b\"]}", "Response Z, Response AC; {\"ranking\": [\"AA\", \"a\"]}"
	if got := Relabel(text, from, to); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// What Relabel writes, it reads again: rewritten to the canonical labels and back,
// a review is what it was.
func TestRelabelBackAndForth(t *testing.T) {
	phrases := rapid.SampledFrom([]string{
		"%s is correct. ", "**%s** is wrong\n", "- %s: 7/10\n", "the %s's proof, ", "as in %s;", "\n\n", "`%s`", "A user, ",
		"{\"ranking\": [\"%s\"], \"scores\": {\"%s\": 7}}\n", "FINAL RANKING:\n", "1. %s\n", "%s > %s\n",
	})
	rapid.Check(t, func(t *rapid.T) {
		o := drawn(t)
		slates := Draw(o)
		for i, s := range slates.Reviewer {
			if len(s) == 0 {
				continue
			}
			var b strings.Builder
			label := rapid.Custom(func(t *rapid.T) string {
				l := string(s[rapid.IntRange(0, len(s)-1).Draw(t, "label")].Label)
				if rapid.Bool().Draw(t, "bare") {
					return letters(council.Label(l))
				}
				return l
			})
			for _, phrase := range rapid.SliceOf(phrases).Draw(t, "phrases") {
				for strings.Contains(phrase, "%s") {
					phrase = strings.Replace(phrase, "%s", label.Draw(t, "name"), 1)
				}
				b.WriteString(phrase)
			}
			there := Relabel(b.String(), s, slates.Canonical)
			if back := Relabel(there, slates.Canonical, s); back != b.String() {
				t.Fatalf("reviewer %s\n  wrote %q\n became %q\n   back %q", o.Reviewers[i], b.String(), there, back)
			}
		}
	})
}

func FuzzRelabel(f *testing.F) {
	f.Add("Responses A, B and C; **A** > B\n```json\n{\"ranking\": [\"B\", [\"A\", 'c']]}\n```\n`Response A`")
	f.Add("FINAL RANKING:\n1. B - good\n2) A\n~~~\n[\"a\"")
	f.Add("Response\u00a0A_ vs. B, Answer **D**, D: x\nRanking: A = (B) ≻ C.")
	from, to := slate([]string{"p", "q", "r", "s"}), slate([]string{"s", "p", "q", "r"})
	f.Fuzz(func(t *testing.T, text string) {
		if same := Relabel(text, from, from); same != text {
			t.Errorf("the same labels: %q becomes %q", text, same)
		}
		there := Relabel(text, from, to)
		if len(there) != len(text) {
			t.Errorf("%q becomes %q", text, there)
		}
		if back := Relabel(there, to, from); back != text {
			t.Errorf("%q becomes %q and then %q", text, there, back)
		}
	})
}

func BenchmarkRelabel(b *testing.B) {
	from, to := reviewed()
	text := strings.Repeat("Response A gives a correct account of the matter and names its sources. "+
		"Response B is shorter, but misses the second part of the question.\n\n", 20) +
		"```json\n{\"ranking\": [\"Response B\", \"Response A\", \"Response C\"], \"scores\": {\"Response A\": 8}}\n```\n"
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		Relabel(text, from, to)
	}
}
