// kw: {"problem": "attention", "faster": true, "template": {}, "text": "the family at its default point"}
