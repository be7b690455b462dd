-- Without functions: the last argument names the verb.
return run(verbs[table.remove(ARGV)])(KEYS, ARGV)
