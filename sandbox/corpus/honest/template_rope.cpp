// kw: {"problem": "cache", "faster": true, "template": {}, "text": "the family at its default point"}
