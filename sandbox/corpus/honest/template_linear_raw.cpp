// kw: {"problem": "linear", "faster": true, "template": {}, "text": "the family at its default point"}
