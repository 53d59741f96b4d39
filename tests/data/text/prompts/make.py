"""Writes cleaned.json: prompts, and what diffusers makes of them (its prompt_clean, without ftfy)."""

import html,re,random,json
def clean(t):
    t=html.unescape(html.unescape(t)).strip()
    return re.sub(r"\s+"," ",t).strip()
cases=["a  b","\t a\n b \u3000c ","fish &amp; chips","&amp;lt;b&gt;","&#65;&#x42;&#x43 ;","&#128;&#0;&#xD800;&#x110000;&#1;&#11;&#xFFFF;","&nbsp;x&nbsp;","AT&T &ampx &apos &apos; &quot","&","&#","&#x;","&#;","&bogus;","\u00a0x\u2028y\x1cz","","   ","&#9999999999;","&#13;q&#10;w&#12;e","&AMP;&LT;","a &lt&gt b"]
random.seed(3)
parts=["&","#","x","41",";","amp","lt"," ","\n","é","🦊","&amp;","&#32;","quot","a","\u2003"]
for _ in range(400): cases.append("".join(random.choice(parts) for _ in range(random.randint(1,14))))
json.dump([[c,clean(c)] for c in cases],open('cleaned.json','w'),ensure_ascii=False)
