package trial_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/councild/councild/internal/trial"
)

// Final lines as models write them, in LaTeX, Markdown and several languages. What a person would read is read, and what
// would be a guess is null. Each group holds texts with the same grade.
func TestFinalLines(t *testing.T) {
	t.Parallel()
	letters := trial.GraderSpec{Type: trial.GraderChoice, Options: []string{"A", "B", "C", "D"}}
	words := trial.GraderSpec{Type: trial.GraderChoice, Options: []string{"yes", "no"}}
	numbers := trial.GraderSpec{Type: trial.GraderNumber}
	count := 0
	for _, c := range []struct {
		spec      trial.GraderSpec
		reference string
		score     string
		texts     []string
	}{
		{letters, `"B"`, "1", []string{
			`ANSWER: B`, `ANSWER: B.`, `ANSWER: (B)`, `ANSWER: [B]`, `ANSWER: {B}`, `ANSWER: B)`, `ANSWER: b`, `answer: B`, `Answer : B`, `**ANSWER: B**`,
			`**ANSWER:** B`, `**Answer**: **B**`, `__ANSWER__: B`, `*ANSWER:* B`, "`ANSWER: B`", "ANSWER: `B`", `### ANSWER: B`, `> ANSWER: B`, `- ANSWER: B`,
			`ANSWER: "B"`, `ANSWER: “B”`, `ANSWER: «B»`, `ANSWER：B`, `ANSWER: Ｂ`, `ANSWER：（Ｂ）`, `ＡＮＳＷＥＲ：B` + "\n" + `ANSWER: B`,
			`ANSWER: $B$`, `ANSWER: $$B$$`, `ANSWER: \(B\)`, `ANSWER: \[B\]`, `ANSWER: \boxed{B}`, `ANSWER: $\boxed{B}$`, `ANSWER: $\boxed{\text{B}}$`,
			`ANSWER: $\boxed{\textbf{(B)}}$`, `ANSWER: \text{B}`, `ANSWER: \textbf{B}`, `ANSWER: $\mathrm{B}$`, `ANSWER: \(\boxed{\mathrm{B}}\)`, `ANSWER: $\boxed{B}$.`,
			`**ANSWER: $\boxed{B}$**`, `ANSWER: \fbox{B}`, `ANSWER: $\text{(B)}$`, `ANSWER: \boxed{B}. The others are too small.`, `ANSWER: $B$, since it is prime`,
			`ANSWER: Option B`, `ANSWER: option (B)`, `ANSWER: Choice B`, `ANSWER: The answer is B`, `ANSWER: The correct option is B.`, `ANSWER: Letter B`,
			`ANSWER: Option B: Paris`, `ANSWER: \text{Option B}`, `ANSWER: B: Paris`, `ANSWER: B - Paris`, `ANSWER: B) 18`, `ANSWER: (B) Paris`, `ANSWER: B. Because of this`,
			`ANSWER: B because A is wrong`, `ANSWER: B is right`, `ANSWER: B, not A`, `ANSWER: B (Paris)`, `ANSWER: B — Paris`,
			"ANSWER:\nB", "ANSWER:\n\n**B**", "**ANSWER:**\n\n$$\n\\boxed{B}\n$$", "## ANSWER\nB", "**Answer**\n\n(B)", "ANSWER:\n- B", "ANSWER:\n```\nB\n```",
			`FINAL ANSWER: B`, `**Final Answer:** B`, `Antwort: B`, `**ANTWORT:** B`, `Antwort: Antwort B`, `Réponse : B`, `RÉPONSE FINALE : $\boxed{B}$`, `Respuesta: B`,
			`RESPUESTA FINAL: opción B`, `Resposta: B`, `Ответ: B`, `ОТВЕТ: **B**`, `答案：B`, `最终答案：**B**`, `ANSWER: 选项B`, `ANSWER: 选B` + "\nANSWER: B", `回答：B`, `정답: B`,
			`ANSWER: B weil A falsch ist`, `ANSWER: B car A est faux`, `ANSWER: B porque A es falso`, `B`, `(B)`, `**B**`, `$\boxed{B}$`,
			"<think>ANSWER: A</think>\nANSWER: B",
		}},
		{letters, `"B"`, "0", []string{
			`ANSWER: A`, `ANSWER: $\boxed{C}$`, `ANSWER: Option D`, `ANSWER: E`, `ANSWER: \text{A}`, `ANSWER: A.`, `ANSWER: A, because it is the first`, "ANSWER:\nA",
			`ANSWER: A is right`, `Antwort: C`, `答案：D`, `ANSWER: none of them`,
		}},
		{letters, `"B"`, "null", []string{
			`ANSWER: A spider has eight legs`, `ANSWER: A or B`, `ANSWER: A, B`, `ANSWER: A/B`, `ANSWER: B and C`, `ANSWER: A good choice would be B`, `ANSWER: a cat`,
			`ANSWER: B vitamins help`, `ANSWER: D minor`, `ANSWER:`, "ANSWER:\n", `ANSWER: **`, `I think it is B.`, `The answer must be B, I think.`, "B\nor C",
			"<think>So the ANSWER: B", "<think>\nfirst guess\nANSWER: B\nbut wait", "◁think▷ANSWER: B", `ANSWER: $A$ or $B$`, `ANSWER: \text{A or B}`,
		}},
		{words, `"yes"`, "1", []string{`ANSWER: Yes`, `ANSWER: **Yes**`, `ANSWER: Yes, because it is even.`, `ANSWER: \text{yes}`, `ANSWER: $\text{Yes}$.`, "ANSWER:\nYes."}},
		{words, `"yes"`, "0", []string{`ANSWER: No`, `ANSWER: No. It is odd.`, `ANSWER: not sure`}},
		{words, `"yes"`, "null", []string{`ANSWER: No idea`, `ANSWER: Yes and no`, `ANSWER: No way to tell`}},
		{numbers, `2000000`, "1", []string{
			`ANSWER: 2000000`, `ANSWER: 2,000,000`, `ANSWER: 2 million`, `ANSWER: 2 Million`, `ANSWER: 2.0 million people`, `ANSWER: $2 million`, `ANSWER: $2M`, `ANSWER: 2 Millionen`,
			`ANSWER: 2 Mio. Euro`, `ANSWER: 2 millions`, `ANSWER: 2 millones`, `ANSWER: 2 milhões`, `ANSWER: 2 миллиона`, `ANSWER: 200万`, `ANSWER: 2百万`, `ANSWER: 2,000 thousand`,
			`ANSWER: 0.002 billion`, `ANSWER: 20 lakh`, `ANSWER: 2e6`, `ANSWER: 2 \times 10^6`, `ANSWER: $2 \times 10^{6}$`, `ANSWER: 2 × 10^6`, `ANSWER: 2·10^6`,
			`ANSWER: $2{,}000{,}000$`, `ANSWER: 2\,000\,000`, `ANSWER: 2 000 000`, "ANSWER: 2\u00a0000\u00a0000", "ANSWER: 2\u202f000\u202f000", `ANSWER: 2'000'000`,
			`ANSWER: 20 hundred thousand`, `ANSWER: ２００００００`, `ANSWER: \boxed{2{,}000{,}000}`, `ANSWER: \$2{,}000{,}000`, `ANSWER: $\$2{,}000{,}000$`,
		}},
		{numbers, `2000000`, "0", []string{`ANSWER: 2`, `ANSWER: 2 thousand`, `ANSWER: 2 Mrd.`, `ANSWER: 3 million`, `ANSWER: 2 metres`, `ANSWER: 2 m`}},
		{numbers, `2000000`, "null", []string{
			`ANSWER: 2 Billion`, `ANSWER: 2兆`, `ANSWER: 2M`, `ANSWER: two million`, `ANSWER: 2 or 3 million`, `ANSWER: between 1 and 2 million`, `ANSWER: 2 and a half million`,
			`ANSWER: 2 to three million`, `ANSWER: 2½`, `ANSWER: 2^6`, `ANSWER: x = 2000000`,
		}},
		{numbers, `0.5`, "1", []string{
			`ANSWER: 0.5`, `ANSWER: .5`, `ANSWER: 1/2`, `ANSWER: $\frac{1}{2}$`, `ANSWER: \frac{1}{2}`, `ANSWER: $\dfrac{1}{2}$`, `ANSWER: \(\tfrac{1}{2}\)`, `ANSWER: $\boxed{\frac{1}{2}}$`,
			`ANSWER: 0,5`, `ANTWORT: 0,50`, `Réponse : 0,5`, `ANSWER: $0{,}5$`, `ANSWER: 0.5 m`, `ANSWER: $0.5\,\text{m}$`, `ANSWER: 0.5 \text{ kg}`, "ANSWER:\n0.5", `ANSWER: +0.5`,
			`ANSWER: $1/2$`, `ANSWER: 5 \times 10^{-1}`, `ANSWER: 5e-1`, `答案：0.5`, `Ответ: 0,5`, `Respuesta: 0,5`,
		}},
		{numbers, `1234.5`, "1", []string{`ANSWER: 1,234.5`, `ANSWER: 1.234,5`, `ANSWER: 1 234,5`, `ANSWER: 1234,5 €`, `ANSWER: €1,234.50`, `ANSWER: $1{,}234.5$`, `ANSWER: 1'234.5`}},
		{numbers, `1234.5`, "null", []string{`ANSWER: 12,34.5`, `ANSWER: 1,234,5`, `ANSWER: 1.234.5`, `ANSWER: 1234.5 or so 1300`}},
		{numbers, `18`, "1", []string{
			`ANSWER: 18`, `ANSWER: **18**`, `ANSWER: $18`, `ANSWER: \$18`, `ANSWER: $18$`, `ANSWER: $18.00`, `ANSWER: 18 eggs`, `ANSWER: 18%`, `ANSWER: $18\%$`, `ANSWER: 18°`, `ANSWER: $18^\circ$`,
			`ANSWER: 18 m²`, `ANSWER: 18 K`, `ANSWER: 18K`, `ANSWER: $\boxed{18}$ dollars`, `ANSWER: \boxed{18 \text{ eggs}}`, `ANSWER: 18.`, "**Answer:**\n\n> 18",
		}},
		{numbers, `18`, "null", []string{"<think>ANSWER: 18", `ANSWER: 18 or 20`, `ANSWER: 18 or twenty`, `ANSWER: $18 or $20`, `ANSWER: $5/$10`, `ANSWER: eighteen`, `So it is 9 x 2 = 18`}},
		{trial.GraderSpec{Type: trial.GraderNormalised}, `"New York"`, "1", []string{`ANSWER: \text{New York}`, `ANSWER: $\text{New York}$`, "ANSWER:\nNew York", `ANSWER: Ｎｅｗ Ｙｏｒｋ`}},
		{trial.GraderSpec{Type: trial.GraderExact}, `"x_1"`, "1", []string{"ANSWER:\nx_1", `Final answer: x_1`}},
	} {
		g, err := trial.NewGrader(c.spec, json.RawMessage(c.reference))
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range c.texts {
			count++
			for _, before := range []string{"", "Some words of reasoning, with 7 and A in them.\n\n"} {
				if before != "" && (!strings.Contains(text, ":") && !strings.Contains(text, "：") && !strings.Contains(text, "\n")) {
					continue // an answer alone
				}
				if got := g.Grade(before + text); scoreText(got.Score) != c.score && (before == "" || !strings.HasPrefix(text, "◁")) {
					t.Errorf("%s, reference %s, %q: %s %q, want %s", c.spec.Type, c.reference, before+text, scoreText(got.Score), got.Form, c.score)
				}
			}
		}
	}
	if count < 200 {
		t.Errorf("%d lines", count)
	}
}
