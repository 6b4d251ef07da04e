module probeshim.test/attributes

go 1.21
