// kw: {"problem": "norm", "faster": true, "template": {}, "text": "the family at its default point"}
