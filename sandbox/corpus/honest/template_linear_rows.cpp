// kw: {"problem": "linear", "faster": true, "template": {"layout": "rows", "decode": "fold"}, "text": "the family
// with repacked rows"}
